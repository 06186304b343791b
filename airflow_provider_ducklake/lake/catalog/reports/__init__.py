"""Questions about a lake that need no commit: health, statistics, changes since a snapshot."""
