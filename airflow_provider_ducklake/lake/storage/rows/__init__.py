"""Rows of a table at a snapshot, in Arrow."""
