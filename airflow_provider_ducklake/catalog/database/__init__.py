"""A catalog database: its engine, its tables and columns, and what is asked of it."""
