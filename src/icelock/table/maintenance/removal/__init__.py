"""What is not needed any more: snapshots that expired, files that no snapshot reaches, and whose those are that lie beside them."""
