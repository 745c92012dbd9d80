"""What an encrypted table may become: rules for every create, load and commit, and those of the one that converts a table."""
