"""From staged files to a commit: snapshots, conflicts, retries, and what is deleted when it fails."""
