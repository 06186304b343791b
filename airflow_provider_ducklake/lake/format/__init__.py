"""The DuckLake format as values and rules; imports nothing but the standard library."""
