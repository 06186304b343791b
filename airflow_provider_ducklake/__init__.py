"""Apache Airflow provider that creates, loads, changes and maintains DuckLake lakehouses as DAG tasks."""

__version__ = "0.1.0"
