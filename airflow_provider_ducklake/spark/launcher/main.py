"""The file that is submitted: hands over to the package, which travels as ``py_files``."""

import sys

from airflow_provider_ducklake.spark.jobs.run import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
