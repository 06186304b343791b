"""Keep a lake in order: compaction, flush, expiry, clean-up."""
