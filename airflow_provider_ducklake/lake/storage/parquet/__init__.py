"""Data files: Parquet with DuckLake's field ids and statistics."""
