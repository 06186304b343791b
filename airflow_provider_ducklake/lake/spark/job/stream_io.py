"""The records of a stream's batches, as files in the checkpoint of its query.

``metadata`` is Spark's own and holds the query's id: another one where the checkpoint was removed and made
again. Ours lie in ``ducklake/``: ``stream.json`` says whose checkpoint it is, ``<query id>/<batch id>.json``
is the record of a batch, there from the moment when its files are complete. Records go when their batches
are committed; the newest one stays, as Spark may run that batch again. Paths of checkpoints end in ``/``,
storage options are fsspec's.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from airflow_provider_ducklake.lake.errors import InvalidInputError, SparkJobError, StorageError
from airflow_provider_ducklake.lake.planning.writing.staged import StagedBatch
from airflow_provider_ducklake.lake.planning.writing.write import WriteResult
from airflow_provider_ducklake.lake.spark.job.documents import (
    check_once,
    check_own_files,
    check_result,
    incomplete_file,
    read_document,
    reading,
    write_document,
)
from airflow_provider_ducklake.lake.spark.job.results import Batch, summary
from airflow_provider_ducklake.lake.spec.names.paths import job_directory
from airflow_provider_ducklake.lake.storage.files.filesystem import (
    delete_file,
    exists,
    file_sizes,
    read_bytes,
)

if TYPE_CHECKING:
    from airflow_provider_ducklake.lake.spark.job.documents import StorageOptions


_MOST_BYTES = 2**16  # of Spark's own file, which has an id


@dataclass(frozen=True, slots=True)
class StreamOwner:
    """The table that a stream's rows go to, and the task that brings them there."""

    table: str
    table_uuid: str
    task: str


def claim(checkpoint: str, owner: StreamOwner, storage_options: StorageOptions = None) -> None:
    """Note whose checkpoint this is where nobody has.

    Raises:
        InvalidInputError: it is that of another table or task.
    """
    uri = f"{checkpoint}ducklake/stream.json"
    if not exists(uri, storage_options):
        write_document(uri, owner, storage_options)
        return
    known = read_document(uri, StreamOwner, storage_options, is_proven=True)  # all it can do is to refuse
    if known.table_uuid != owner.table_uuid:
        raise InvalidInputError(
            f"The checkpoint {checkpoint} belongs to the table {known.table} ({known.table_uuid}), not to "
            f"{owner.table} ({owner.table_uuid}): rows committed there would be missing here. Give each "
            "table its own checkpoint, also a table that was created again. If a restore created it with "
            f"the rows that the stream had committed, remove {checkpoint}ducklake/ and the stream continues "
            "from there."
        )
    if known.task != owner.task:
        raise InvalidInputError(
            f"The checkpoint {checkpoint} belongs to the task {known.task}, not to {owner.task}. Give each "
            f"stream its own checkpoint. If the task was only renamed, remove {uri}."
        )


def query_id(checkpoint: str, storage_options: StorageOptions = None) -> str | None:
    """Return the id of the query whose checkpoint it is; None: no query has begun there.

    Raises:
        SparkJobError: Spark's file is not as it used to be.
        StorageError: it cannot be read, or is far longer.
    """
    uri = f"{checkpoint}metadata"
    if not exists(uri, storage_options):
        return None
    try:
        return str(UUID(json.loads(read_bytes(uri, storage_options, limit=_MOST_BYTES))["id"]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise SparkJobError(f"{uri} does not hold the id of a streaming query, which is a UUID.") from None


def record_uri(checkpoint: str, query_id: str, batch_id: int) -> str:
    """Return where the record of a batch lies."""
    return f"{_folder(checkpoint, query_id)}{batch_id}.json"


def _folder(checkpoint: str, query_id: str) -> str:
    return f"{checkpoint}ducklake/{query_id}/"


def batch_ids(checkpoint: str, query_id: str, storage_options: StorageOptions = None) -> list[int]:
    """Return the batches of a query that have a record, ascending."""
    names = file_sizes(_folder(checkpoint, query_id), storage_options)
    stems = (name.removesuffix(".json") for name in names if name.endswith(".json"))
    return sorted(int(stem) for stem in stems if stem.isdecimal())


def write_batch(checkpoint: str, batch: StagedBatch, storage_options: StorageOptions = None) -> None:
    """Write the record of a batch, in place of another one of the same batch; its files are complete."""
    record = Batch(
        **summary(batch.result),
        query_id=batch.query_id,
        batch_id=batch.batch_id,
        job_id=batch.job_id,
        data_files=batch.result.data_files,
    )
    write_document(record_uri(checkpoint, batch.query_id, batch.batch_id), record, storage_options)


def read_batch(
    checkpoint: str, query_id: str, batch_id: int, root: str, storage_options: StorageOptions = None
) -> StagedBatch:
    """Return a batch by its record; ``root`` is the directory of the stream's table.

    Raises:
        SparkJobError: it was written by another release, or is that of another batch.
        UntrustedValueError: it names files of another table or job.
    """
    uri = record_uri(checkpoint, query_id, batch_id)
    found = read_document(uri, Batch, storage_options)
    with reading(uri):
        if (found.query_id, found.batch_id) != (query_id, batch_id):
            raise SparkJobError(f"{uri} is the record of another batch. Nothing was committed.")
        result = WriteResult(**summary(found), data_files=found.data_files)
        check_result(result, uri)
        job_id = str(UUID(found.job_id))
    paths = [file.path for file in found.data_files]
    check_own_files(paths, job_directory(root, job_id), uri)
    check_once(paths, uri)
    return StagedBatch(query_id, batch_id, job_id, result)


def check_files(checkpoint: str, batch: StagedBatch, storage_options: StorageOptions = None) -> None:
    """Look whether the files of a batch are all there, and as long as they were.

    Raises:
        StorageError: names one that is not.
    """
    path = incomplete_file(batch.result.data_files, storage_options)
    if path is not None:
        uri = record_uri(checkpoint, batch.query_id, batch.batch_id)
        raise StorageError(
            f"Batch {batch.batch_id} of the stream is incomplete: {path} is missing or truncated, perhaps "
            f"because of a clean-up, and Spark will not read its rows again. Remove {uri} to continue "
            "without them, or use a new checkpoint, which starts at the first row."
        )


def delete_batch(
    checkpoint: str, query_id: str, batch_id: int, storage_options: StorageOptions = None
) -> None:
    """Delete the record of a batch and leave its data files."""
    delete_file(record_uri(checkpoint, query_id, batch_id), storage_options)
