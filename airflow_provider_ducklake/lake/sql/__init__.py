"""DuckDB's SQL read into values: the statements that change schemas, tables and views."""
