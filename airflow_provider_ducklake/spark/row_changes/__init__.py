"""Which rows a delete, update or merge changes, and what becomes of them."""
