"""PySpark jobs, independent of catalog and Airflow. Importing ``spark.job`` loads no PySpark."""
