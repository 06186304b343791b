"""The records of bins that became files: one lies beside a file from the moment when that is complete.

Directories end in ``/``, storage options are fsspec's. Importing this loads neither pyspark nor pyarrow.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from airflow_provider_ducklake.spark.job.codec import decode, dumps, encode, loads
from airflow_provider_ducklake.spark.job.documents import check_once, check_own_files, reading

if TYPE_CHECKING:
    from airflow_provider_ducklake.spark.job.job_io import StorageOptions
    from airflow_provider_ducklake.transaction.changes import MergedFile, RewrittenFile

_FOLDER = "bins/"


def write_record(
    directory: str, compacted: MergedFile | RewrittenFile, storage_options: StorageOptions = None
) -> None:
    """Write down that a file is complete, and what it is to replace."""
    from airflow_provider_ducklake.storage.files.filesystem import write_bytes  # noqa: PLC0415 - loads pyarrow
    from airflow_provider_ducklake.transaction.changes import MergedFile, RewrittenFile  # noqa: PLC0415 - no DAG file needs it

    uri = f"{directory}{_FOLDER}{uuid.uuid4()}.json"
    write_bytes(uri, dumps(encode(compacted, MergedFile | RewrittenFile)), storage_options, private=True)


def read_records(
    directory: str, storage_options: StorageOptions = None
) -> dict[str, MergedFile | RewrittenFile]:
    """Return the files that are complete, by the URIs of their records; oldest sources first.

    Raises:
        UntrustedValueError: a record names a file that the job with the directory cannot have written, or
            that another record names.
    """
    from airflow_provider_ducklake.storage.files.filesystem import file_sizes, read_bytes  # noqa: PLC0415
    from airflow_provider_ducklake.storage.files.parallel import in_threads  # noqa: PLC0415
    from airflow_provider_ducklake.transaction.changes import MergedFile, RewrittenFile  # noqa: PLC0415

    folder = directory + _FOLDER
    uris = [folder + name for name in file_sizes(folder, storage_options) if name.endswith(".json")]

    def read(uri: str) -> MergedFile | RewrittenFile:
        with reading(uri):
            document = loads(read_bytes(uri, storage_options), uri)
            found: MergedFile | RewrittenFile = decode(document, MergedFile | RewrittenFile)
        check_own_files(() if found.file is None else (found.file.path,), directory, uri)
        return found

    found = in_threads(read, uris)
    check_once((one.file.path for one in found if one.file is not None), folder)
    records = zip(uris, found, strict=True)
    return dict(sorted(records, key=lambda one: one[1].sources))


def delete_record(uri: str, storage_options: StorageOptions = None) -> None:
    """Forget a record; its file is the lake's, or gone."""
    from airflow_provider_ducklake.storage.files.filesystem import delete_file  # noqa: PLC0415

    delete_file(uri, storage_options)
