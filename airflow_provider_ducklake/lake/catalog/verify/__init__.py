"""Which invariants of the format a lake breaks."""
