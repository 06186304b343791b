"""Bins that became files: where such a file lies, and its record, there from the moment when it is complete.

Directories end in ``/``, storage options are fsspec's.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from airflow_provider_ducklake.lake.spark.job.codec import decode, encode, loads
from airflow_provider_ducklake.lake.spark.job.documents import (
    check_once,
    check_own_files,
    reading,
    write_json,
)
from airflow_provider_ducklake.lake.spec.names.paths import job_directory
from airflow_provider_ducklake.lake.storage.files.filesystem import delete_file, file_sizes, read_bytes
from airflow_provider_ducklake.lake.storage.files.parallel import in_threads
from airflow_provider_ducklake.lake.storage.files.writing import opened
from airflow_provider_ducklake.lake.transaction.changes import MergedFile, RewrittenFile

if TYPE_CHECKING:
    from airflow_provider_ducklake.lake.planning.upkeep.compaction import Bin
    from airflow_provider_ducklake.lake.planning.writing.write import WritePlan
    from airflow_provider_ducklake.lake.spark.job.documents import StorageOptions
    from airflow_provider_ducklake.lake.spark.job.request import CompactionSource

CompactedFile: TypeAlias = MergedFile | RewrittenFile
_FOLDER = "bins/"


def file_path(files: Bin, plan: WritePlan, source: CompactionSource) -> str:
    """Return where the file of a bin is to lie: in the folder of its partition, if that has one by now."""
    staged = replace(plan, directory=directory_of(source))
    name = f"{uuid.uuid4().hex}.parquet"
    has_folder = files.partition_id == source.partition_id
    folder = staged.partition_folder(files.partition_values) if has_folder else None
    return staged.directory + name if folder is None else folder + staged.prefix + name


def directory_of(source: CompactionSource) -> str:
    """Return the directory of the files and their records."""
    return job_directory(source.compaction.table.root, source.staging_id)


def write_record(directory: str, compacted: CompactedFile) -> None:
    """Write down that the file of a bin is complete, and what it is to replace."""
    uri = f"{directory}{_FOLDER}{uuid.uuid4()}.json"
    write_json(uri, encode(compacted, CompactedFile))


def read_records(directory: str, storage_options: StorageOptions = None) -> dict[str, CompactedFile]:
    """Return the files that are complete, by the URIs of their records; oldest sources first.

    Raises:
        UntrustedValueError: a record names a file that the job with the directory cannot have written, or
            that another record names.
    """
    folder = directory + _FOLDER
    uris = [folder + name for name in file_sizes(folder, storage_options) if name.endswith(".json")]

    def read(uri: str) -> CompactedFile:
        with reading(uri):
            found: CompactedFile = decode(
                loads(opened(uri, read_bytes(uri, storage_options)), uri), CompactedFile
            )
        check_own_files(() if found.file is None else (found.file.path,), directory, uri)
        return found

    found = in_threads(read, uris)
    check_once((one.file.path for one in found if one.file is not None), folder)
    records = zip(uris, found, strict=True)
    return dict(sorted(records, key=lambda one: one[1].sources))


def delete_record(uri: str, storage_options: StorageOptions = None) -> None:
    """Forget a record; its file is the lake's, or gone."""
    delete_file(uri, storage_options)
