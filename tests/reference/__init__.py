"""DuckDB's `ducklake` extension as the judge, the databases it needs, and the comparison of catalogs."""
