"""Airflow operators of the provider, one verb per file."""
