"""Uploads in parts that nobody finished: S3 keeps their parts, and charges for them, and lists no file.

*Source:* "Aborting a multipart upload" in the user guide of Amazon S3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider_ducklake.lake.storage.files.filesystem import (
    bucket_and_key,
    fsspec_of,
    naming_errors,
    open_filesystem,
)
from airflow_provider_ducklake.lake.storage.files.refusals import reason_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from airflow_provider_ducklake.lake.storage.files.filesystem import StorageOptions


@dataclass(frozen=True, slots=True)
class Upload:
    """An upload by the path of its file below the directory, the store's id of it, and when it began."""

    name: str
    id: str
    began_at: datetime


def unfinished_uploads(path: str, storage_options: StorageOptions | None = None) -> list[Upload]:
    """Return the uploads under way below a directory; none in stores that are not S3.

    Raises:
        StorageError: they cannot be listed.
    """
    location = open_filesystem(path, storage_options)
    filesystem = fsspec_of(location)
    if not hasattr(filesystem, "call_s3"):
        return []
    bucket, prefix = bucket_and_key(filesystem, location.path)
    with naming_errors(path, "list uploads below"):
        return [
            Upload(one["Key"].removeprefix(prefix), one["UploadId"], one["Initiated"])
            for answer in _pages(filesystem, bucket, prefix)
            for one in answer.get("Uploads", ())
        ]


def _pages(filesystem: Any, bucket: str, prefix: str) -> Iterator[dict[str, Any]]:  # noqa: ANN401 - s3fs
    position: dict[str, str] = {}
    while True:
        answer = filesystem.call_s3("list_multipart_uploads", Bucket=bucket, Prefix=prefix, **position)
        yield answer
        if not answer.get("IsTruncated"):
            return
        position = {"KeyMarker": answer["NextKeyMarker"], "UploadIdMarker": answer["NextUploadIdMarker"]}


def abort_upload(path: str, upload: Upload, storage_options: StorageOptions | None = None) -> str | None:
    """Have the store drop the parts of an upload below ``path``; return why it does not, None if it does."""
    location = open_filesystem(path, storage_options)
    filesystem = fsspec_of(location)
    bucket, prefix = bucket_and_key(filesystem, location.path)
    try:
        filesystem.call_s3(
            "abort_multipart_upload", Bucket=bucket, Key=prefix + upload.name, UploadId=upload.id
        )
    except FileNotFoundError:  # it ended meanwhile
        return None
    except Exception as error:  # noqa: BLE001 - each store has its own; the caller names them all
        return reason_of(error)
    return None
