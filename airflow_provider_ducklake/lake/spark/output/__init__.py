"""What a Spark job prints, and what it means."""
