"""Types, names and sessions of Spark."""
