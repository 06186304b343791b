"""PySpark jobs; they know no catalog and no Airflow. This module imports nothing, so operators may import ``job_io``."""
