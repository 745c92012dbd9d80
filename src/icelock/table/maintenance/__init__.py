"""Removing what is not needed any more: snapshots that expired, files that no snapshot reaches."""
