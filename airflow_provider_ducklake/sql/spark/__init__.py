"""Parse Spark SQL."""
