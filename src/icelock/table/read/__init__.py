"""What readers ask of a table: scans, streams, datasets for engines, and the methods that give them."""
