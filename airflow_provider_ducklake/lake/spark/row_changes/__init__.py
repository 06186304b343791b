"""Which rows a delete, update or merge changes, and how."""
