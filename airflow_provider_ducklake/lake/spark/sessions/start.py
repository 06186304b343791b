"""Start the session of a submitted job."""

from __future__ import annotations

import os
import sys
import zipfile

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from airflow_provider_ducklake.lake.spark.sessions.settings import prepare_sources
from airflow_provider_ducklake.lake.storage.files.filesystem import (
    address_as_environment,
    as_environment,
    process_options,
)

_PY_FILES = "spark.submit.pyFiles"
_DEFAULTS = {
    "spark.log.level": "WARN",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
}


def start_session(name: str) -> SparkSession:
    """Return the session of a submitted job; what the user configured counts before our defaults."""
    SparkContext._ensure_initialized()  # noqa: SLF001 - without its JVM a SparkConf is empty
    given = SparkConf()
    builder = SparkSession.builder.appName(name)
    for key, value in own_settings(given).items():
        builder = builder.config(key, value)
    builder = builder.config(_PY_FILES, _on_the_path(given.get(_PY_FILES) or ""))
    spark = builder.getOrCreate()
    if zipfile.is_zipfile(sys.argv[0]):  # what runs here is the archive that executors need, too
        spark.sparkContext.addPyFile(os.path.abspath(sys.argv[0]))  # noqa: PTH100 - a text
    prepare_sources(spark)
    return spark


def own_settings(given: SparkConf) -> dict[str, str]:
    """Return what a session gets from us, where the user has not set it."""
    ours = {**_DEFAULTS, **_for_executors(given.get("spark.master") or "")}
    return {key: value for key, value in ours.items() if not given.contains(key)}


def _for_executors(master: str) -> dict[str, str]:
    """Return what hands the lake's storage options to executors that other machines start.

    Pods show their variables to many, and YARN's client writes all settings into a file of the staging
    directory (``__spark_conf__``): there executors are told where the store is, and no more. In one process
    with the driver they have the options anyway.
    """
    options = process_options()
    if master.startswith(("spark://", "local-cluster")):
        variables = as_environment(options)
    elif master.startswith("local"):
        variables = {}
    else:
        variables = address_as_environment(options)
    return {f"spark.executorEnv.{name}": value for name, value in variables.items()}


def _on_the_path(py_files: str) -> str:
    """Return the files that Python is to find modules in: the launcher has left the large jars out."""
    kept = {os.path.basename(path) for path in sys.path}  # noqa: PTH119 - URIs, too
    return ",".join(
        file for file in py_files.split(",") if not file.endswith(".jar") or file.rpartition("/")[2] in kept
    )
