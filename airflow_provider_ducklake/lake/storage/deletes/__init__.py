"""Delete files and deletion vectors."""
