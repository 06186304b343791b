"""Migrate catalogs of older spec versions to 1.0, in place."""
