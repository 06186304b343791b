"""Plans of writes: new, changed and replaced rows."""
