"""Read a lake from its catalog at one snapshot."""
