"""What DDL of DuckDB's SQL says."""
