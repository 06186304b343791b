"""Expressions and queries of DuckDB's SQL that a catalog keeps: sort keys, and the bodies of macros."""
