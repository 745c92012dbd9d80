"""What executors run: no catalog, no KMS."""
