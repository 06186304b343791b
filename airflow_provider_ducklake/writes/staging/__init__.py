"""Files that wait for their commit: staged writes, batches of streams, compacted files."""
