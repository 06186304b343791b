"""A catalog database: its engine, its tables and columns, and its queries."""
