"""Plans of reads: pruning, scans, the change feed."""
