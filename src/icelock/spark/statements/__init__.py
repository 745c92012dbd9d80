"""What Spark's own statements ask of icelock's tables, answered in the process of a classic session."""
