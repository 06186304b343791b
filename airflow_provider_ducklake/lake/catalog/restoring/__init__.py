"""Restore tables, schemas or the lake to an older snapshot."""
