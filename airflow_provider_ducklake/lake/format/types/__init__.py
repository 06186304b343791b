"""DuckLake's column types and values, and their texts."""
