"""Rows rewritten: compacted, flushed, restored, verified."""
