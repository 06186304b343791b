"""Names and paths, and how they are written."""
