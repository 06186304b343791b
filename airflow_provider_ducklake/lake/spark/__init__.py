"""PySpark jobs, independent of catalog and Airflow. Imports nothing, so operators may import ``job_io``."""
