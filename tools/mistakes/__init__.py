"""Mistakes that users make, each run, and what is printed then: docs/errors.md."""
