"""Parse DDL statements of DuckDB's SQL."""
