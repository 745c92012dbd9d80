"""From a file's bytes to rows of the table: open, project, filter, and drop deleted rows."""
