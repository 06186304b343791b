"""The local Spark of a child process."""

import os
import sys
import warnings

from pyspark.sql import SparkSession

from tests.reference.processes import FAST_JVM
from tests.spark.conftest import LOCAL_CONF


def local_session() -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["JDK_JAVA_OPTIONS"] = FAST_JVM
    builder = SparkSession.builder
    for key, value in {**LOCAL_CONF, "spark.driver.memory": "4g"}.items():  # one file has 2 GiB of text
        builder = builder.config(key, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the installed pandas is newer than pyspark knows
        return builder.getOrCreate()
