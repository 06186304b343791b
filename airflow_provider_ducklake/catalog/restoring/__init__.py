"""Make tables, schemas or the lake what they were at an older snapshot."""
