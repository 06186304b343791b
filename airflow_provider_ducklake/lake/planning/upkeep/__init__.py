"""Plans of maintenance: compaction, expiry, restore, migration."""
