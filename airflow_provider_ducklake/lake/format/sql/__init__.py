"""Expressions of DuckDB's SQL that a catalog keeps as sort keys, and the tokens of that SQL."""
