"""The Airflow side, run by Airflow itself."""
