"""Plans of writes: what becomes of new, changed and replaced rows."""
