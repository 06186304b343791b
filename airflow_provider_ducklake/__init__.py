"""Apache Airflow provider that runs the whole life of a DuckLake lakehouse as DAG tasks."""

__version__ = "0.1.0"
