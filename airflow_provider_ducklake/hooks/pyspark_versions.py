"""Whether the two distributions that install PySpark's files are of one version."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def mismatch() -> str | None:
    """Return what is wrong with the installed PySpark, None where nothing is.

    ``pyspark-client``, which Airflow's Spark provider installs, overwrites hundreds of ``pyspark``'s files.
    """
    try:
        full, client = version("pyspark"), version("pyspark-client")
    except PackageNotFoundError:  # spark-submit is somebody else's
        return None
    if full == client:
        return None
    return (
        f"pyspark is {full} and pyspark-client is {client} where this task runs. They share files: "
        "one breaks the other. Install one version of both: "
        f"pip install --force-reinstall pyspark=={full} pyspark-client=={full}."
    )
