"""What texts of Spark SQL say."""
