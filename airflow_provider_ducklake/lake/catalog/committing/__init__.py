"""Commit changes as one snapshot."""
