"""Migrate catalogs of older spec versions to 1.0 and 1.1, in place."""
