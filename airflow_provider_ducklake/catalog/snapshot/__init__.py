"""Read what the catalog says of a lake at one snapshot."""
