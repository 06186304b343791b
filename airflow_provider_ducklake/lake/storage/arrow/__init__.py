"""Arrow: DuckLake's types as Arrow's, and tables in the columns of a lake's."""
