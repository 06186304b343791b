"""Tables of ours beside the format's: commit keys, jobs, consumers, restores."""
