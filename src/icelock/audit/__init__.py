"""What of a table is encrypted, under which keys, and what is wrong: read anew, without the code that reads and writes tables."""
