"""What changed between two snapshots, row by row: which snapshots, which files, which rows, and which of them are one row's update."""
