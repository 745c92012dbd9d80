"""Keys of a table that change: wrapped anew, or files and lists under new ones, and what hangs on the old."""
