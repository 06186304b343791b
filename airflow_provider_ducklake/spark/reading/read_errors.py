"""Errors of a read that Spark raised while it ran: which data file it was, of which table and snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ducklake.errors import DuckLakeError, SparkJobError, StorageError
from airflow_provider_ducklake.spark.job.errors import cause_of, typed
from airflow_provider_ducklake.spark.reading.read_deletes import spark_path
from airflow_provider_ducklake.storage.parquet.reader import unreadable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_provider_ducklake.planning.reading.scan import ScanPlan
    from airflow_provider_ducklake.spec.files import LiveDataFile
    from airflow_provider_ducklake.spec.snapshots import TableSnapshot

_WITHOUT_IDS = "expects field Ids"


def read_error(error: Exception, plans: Iterable[ScanPlan]) -> DuckLakeError:
    """Return the error of ours for one that Spark raised over DataFrames of ``read_table`` with these plans.

    That is a ``StorageError`` where Spark names one of their files and no other cause, else what
    ``job_errors.typed`` returns.
    """
    found = typed(error)
    if not isinstance(found, SparkJobError) or cause_of(error) is not None:
        return found
    text = str(error)
    for plan in plans:
        for file in plan.files:
            if spark_path(file.path).rpartition("/")[2] in text:
                return StorageError(f"{_unreadable(plan.table, file, text)}\n{found}")
    return found


def _unreadable(table: TableSnapshot, file: LiveDataFile, text: str) -> DuckLakeError:
    if "FILE_NOT_EXIST" in text or "FileNotFoundException" in text:
        reason = "the file does not exist."
    elif _WITHOUT_IDS in text:
        reason = "its columns have no field ids, and it has no name mapping."
    else:
        reason = "Spark cannot read it."
    return unreadable(file, str(table.name), table.snapshot.id, reason)
