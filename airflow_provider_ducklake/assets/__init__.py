"""Assets: how Airflow names lake tables."""
