"""PySpark jobs; they know no catalog and no Airflow. Imports nothing, so operators may import ``job_io``."""
