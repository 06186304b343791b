"""Check that the two distributions that install PySpark's files have the same version."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def mismatch() -> str | None:
    """Return what is wrong with the installed PySpark, None where nothing is.

    ``pyspark-client``, which Airflow's Spark provider installs, overwrites hundreds of ``pyspark``'s files.
    It is not released with each version of ``pyspark``, so its own is the one that both have.
    """
    try:
        full, client = version("pyspark"), version("pyspark-client")
    except PackageNotFoundError:  # spark-submit is somebody else's
        return None
    if full == client:
        return None
    return (
        f"Where this task runs, pyspark is {full} and pyspark-client is {client}. They install the same "
        "files, so one breaks the other. Install airflow-provider-ducklake-spark[pyspark], which pins both "
        "to the tested version, or install both in the same version: pip install --force-reinstall "
        f"pyspark=={client} pyspark-client=={client}."
    )
