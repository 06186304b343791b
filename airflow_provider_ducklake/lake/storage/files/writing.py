"""A new file that is there whole or not at all, on local disks and in object stores."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from ...errors import SparkJobError, StorageError
from .filesystem import (
    Location,
    StorageOptions,
    bucket_and_key,
    delete_file_at,
    fsspec_of,
    open_filesystem,
    open_input,
    reason_of,
    storage_errors,
)
from .local import make_parents, regular_file, sync_directory


class OutputFile:
    """A new file that appears complete or, after ``abort``, not at all as far as the store allows.

    ``size`` counts the bytes written, ``tail`` keeps the last few. pyarrow takes it for a Python file object.
    """

    def __init__(self, location: Location) -> None:
        self._location = location
        self.closed = False
        self.size = 0
        self.tail = b""
        self._stream: Any = _open_output(location)

    def write(self, data: bytes | memoryview) -> int:
        """Append bytes."""
        if self.closed:
            raise StorageError(f"{self._location.uri} was abandoned.")
        written = bytes(data)
        self._stream.write(written)
        self.size += len(written)
        self.tail = (
            (self.tail + written)[-_TAIL_BYTES:] if len(written) < _TAIL_BYTES else written[-_TAIL_BYTES:]
        )
        return len(written)

    def tell(self) -> int:
        """Return the number of bytes written."""
        return self.size

    def flush(self) -> None:
        """Do nothing: only ``finish`` makes the file visible."""

    def close(self) -> None:
        """Do nothing: a Parquet writer that closes its file may do so because of an error."""

    def finish(self) -> None:
        """Make the file complete and lasting."""
        self.closed = True
        if self._location.is_local:
            self._stream.flush()
            os.fsync(self._stream.fileno())
            sync_directory(Path(self._location.path).parent)
        self._stream.close()

    def abort(self) -> None:
        """Drop the file. A store that published it half written is asked to delete it."""
        self.closed = True
        stream, self._stream = self._stream, None
        with suppress(Exception):
            _discard(stream)
        with suppress(StorageError):
            delete_file_at(self._location)


_TAIL_BYTES = 8


def _open_output(location: Location) -> Any:  # noqa: ANN401
    if location.is_local:
        path = Path(location.path)
        try:
            return path.open("xb")
        except FileNotFoundError:
            make_parents(path)
            return path.open("xb")
    fsspec_filesystem = fsspec_of(location)
    if fsspec_filesystem is not None:
        return fsspec_filesystem.open(location.path, "wb")
    return location.filesystem.open_output_stream(location.path)


def _discard(stream: Any) -> None:  # noqa: ANN401
    if hasattr(stream, "discard"):  # fsspec: cancels the upload
        stream.discard()
        stream.closed = True  # else it uploads when it is collected
    else:  # Arrow cannot cancel an upload, and its destructor would publish it after we deleted it
        stream.close()


# Uploads in parts that were never finished: S3 keeps their parts, and charges for them, and lists no file.
#
# *Source:* "Aborting a multipart upload" in the user guide of Amazon S3.


@dataclass(frozen=True, slots=True)
class Upload:
    """An upload by the path of its file below the directory, the store's id of it, and when it began."""

    name: str
    id: str
    began_at: datetime


def unfinished_uploads(path: str, storage_options: StorageOptions | None = None) -> list[Upload]:
    """Return the uploads under way below a directory; none in stores that are not S3."""
    location = open_filesystem(path, storage_options)
    filesystem = fsspec_of(location)
    if not hasattr(filesystem, "call_s3"):
        return []
    bucket, prefix = bucket_and_key(filesystem, location.path)
    with storage_errors(path, "list uploads below"):
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
    """Drop the parts of an upload below ``path``; return why the store refuses, None if it does not."""
    location = open_filesystem(path, storage_options)
    filesystem = fsspec_of(location)
    bucket, prefix = bucket_and_key(filesystem, location.path)
    try:
        filesystem.call_s3(
            "abort_multipart_upload", Bucket=bucket, Key=prefix + upload.name, UploadId=upload.id
        )
    except FileNotFoundError:  # it ended in the meantime
        return None
    except Exception as error:  # noqa: BLE001 - each store has its own; the caller names them all
        return reason_of(error)
    return None


# Copy a file, server-side where the store supports it.


_BLOCK_BYTES = 8 * 2**20


def copy_file(source: Location, target: Location) -> None:
    """Copy a file to where there is none; it appears complete or, as far as the store allows, not at all."""
    with storage_errors(source.uri, "copy"):
        if source.is_local and target.is_local:
            _copy_locally(Path(source.path), Path(target.path))
        elif not _copy_in_store(source, target):
            _copy_through(source, target)


def _copy_locally(source: Path, target: Path) -> None:
    """Copy under a new name first: a link that has the target's name is replaced, and not followed."""
    make_parents(target)
    temporary = target.with_name(f".{target.name[:100]}.{secrets.token_hex(8)}.tmp")
    try:
        with (
            regular_file(str(source)) as opened,
            Path(opened).open("rb") as read,
            temporary.open("xb") as made,
        ):
            shutil.copyfileobj(read, made, _BLOCK_BYTES)
            made.flush()
            os.fsync(made.fileno())
        temporary.replace(target)
        sync_directory(target.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _copy_in_store(source: Location, target: Location) -> bool:
    """Let the store copy, and return whether it can."""
    filesystem = fsspec_of(source)
    if filesystem is None:
        if not source.filesystem.equals(target.filesystem):
            return False
        source.filesystem.copy_file(source.path, target.path)
        return True
    if filesystem is not fsspec_of(target):
        return False
    try:
        filesystem.cp_file(source.path, target.path)
    except NotImplementedError:
        return False
    return True


def _copy_through(source: Location, target: Location) -> None:
    with open_input(source) as stream:
        sink = OutputFile(target)
        try:
            while block := stream.read(_BLOCK_BYTES):
                sink.write(block)
            sink.finish()
        except BaseException:
            sink.abort()
            raise


# A file that is copied for a frozen lake.


@dataclass(frozen=True, slots=True)
class CopiedFile:
    """The source of a copy, and its size; None: the catalog has none."""

    source: str
    size: int | None


# Documents of jobs on encrypted lakes: they name the keys of files, and lie where others may read.
#
# They are sealed with a key of the lake's own, which the catalog keeps beside those of the files. A process
# learns it from the catalog, from a file, or by its environment, which only the same user can read; the
# variable's name has Spark and Airflow hide its value wherever they show settings. Where a process has no
# key for a place, documents are written there as they are.
#
# Who can write the store, and has no key, can forge nothing: where a process has the key it takes no
# document without a seal, and a seal is for one place: a name in the directory of one job. That place is
# the same however the lake's data path is spelled.


@dataclass(frozen=True, slots=True)
class _Known:
    """A key, and the file from which it was learned, if it was one."""

    key: bytes = field(repr=False)
    file: str | None = None

    @property
    def id(self) -> bytes:
        """The id of its key in documents."""
        return hashlib.sha256(b"ducklake document key" + self.key).digest()[:_ID_BYTES]


@dataclass(slots=True)
class _Drivers:
    """What this process expects of the drivers of its jobs."""

    may_lack_key: bool = False


VARIABLE = "DUCKLAKE_DOCUMENT_SECRET"
_MAGIC = b"DLS2"
_PLACES = (
    re.compile(r".*/(ducklake-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}/.+)", re.DOTALL),
    re.compile(r".*/(ducklake/.+)", re.DOTALL),  # in the checkpoint of a stream
)
_KEY_BYTES, _ID_BYTES, _NONCE_BYTES = 32, 8, 12
_drivers = _Drivers()
_known: dict[str, _Known] = {}  # by the directory that a key is for; "" is every other


def new_key() -> str:
    """Return a new key, as the catalog keeps it."""
    return base64.b64encode(secrets.token_bytes(_KEY_BYTES)).decode()


def learn(directory: str, text: str | None, file: str | None = None) -> None:
    """Give this process a key to seal and open documents below a directory; None: it has none.

    ``file`` is where the key was read, which drivers on other machines read, too.
    """
    if text is None:
        return
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except ValueError:
        key = b""
    if len(key) != _KEY_BYTES:
        raise StorageError(
            f"The key for documents below {directory or 'the data path'} is not {_KEY_BYTES} bytes in "
            "base64. Make one with: openssl rand -base64 32."
        )
    _known[directory] = _Known(key, file)


def learn_from_file(directory: str, file: str) -> None:
    """Learn the key from a local file."""
    try:
        text = Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(f"Cannot read document_key_file {file}: {error}.") from error
    learn(directory, text, file)


def expect_drivers_without_key() -> None:
    """Take documents that are not sealed from now on, of lakes whose key is in no file.

    In cluster mode there is no way to hand that key to a driver.
    """
    _drivers.may_lack_key = True


def file_of(uri: str) -> str | None:
    """Return the file from which the key for ``uri`` was learned; None: it was no file."""
    known = _known_for(uri)
    return None if known is None else known.file


def key_of(uri: str) -> str | None:
    """Return the key for what lies at ``uri``, as ``learn`` takes it; None: this process has none."""
    known = _known_for(uri)
    return None if known is None else base64.b64encode(known.key).decode()


def as_environment(uri: str) -> Mapping[str, str]:
    """Return the variable that hands the key for ``uri`` to a process; nothing where there is none."""
    text = key_of(uri)
    return {} if text is None else {VARIABLE: text}


def _known_for(uri: str) -> _Known | None:
    if "" not in _known and VARIABLE in os.environ:
        learn("", os.environ[VARIABLE])
    found = max((one for one in _known if uri.startswith(one)), key=len, default=None)
    return None if found is None else _known[found]


def sealed(uri: str, content: bytes) -> bytes:
    """Return the bytes to write at ``uri``: sealed if there is a key."""
    known = _known_for(uri)
    if known is None:
        return content
    nonce = secrets.token_bytes(_NONCE_BYTES)
    body: bytes = _aes(known.key).encrypt(nonce, content, _place(uri))
    return _MAGIC + known.id + nonce + body


def lacks_seal(uri: str, content: bytes) -> bool:
    """Return True if a document is not sealed, although this process has the key for its place."""
    return _known_for(uri) is not None and not content.startswith(_MAGIC)


def opened(uri: str, content: bytes, *, is_proven: bool = False) -> bytes:
    """Return the document that lies at ``uri``.

    ``is_proven``: the caller identifies it by other means, so that it needs no seal.
    """
    if not content.startswith(_MAGIC):
        _check_plain(uri, is_proven=is_proven)
        return content
    body = content[len(_MAGIC) + _ID_BYTES :]
    _known_for(uri)  # learns that of the environment
    name = content[len(_MAGIC) : len(_MAGIC) + _ID_BYTES]
    known = next((one for one in _known.values() if one.id == name), None)
    if known is None:
        raise SparkJobError(
            f"{uri} is sealed with a key that this process does not have. Was it written by a job of another "
            "lake, or with another document_key_file?"
        )
    from cryptography.exceptions import InvalidTag

    try:
        plain: bytes = _aes(known.key).decrypt(body[:_NONCE_BYTES], body[_NONCE_BYTES:], _place(uri))
    except (InvalidTag, ValueError):
        raise SparkJobError(
            f"{uri} was changed after it was sealed, or was sealed for another place, and is not used."
        ) from None
    return plain


def _check_plain(uri: str, *, is_proven: bool) -> None:
    known = _known_for(uri)
    is_expected = known is None or (known.file is None and _drivers.may_lack_key)
    if not (is_expected or is_proven):
        raise SparkJobError(
            f"{uri} is not sealed, although the documents of this lake's jobs are, and is not used. Run the "
            "task that wrote it again. If that does not help, find out who else writes there."
        )


def _place(uri: str) -> bytes:
    """Return for which place a document is sealed: the job's directory and the name in it, if it has one.

    The table's folder above is not part of it: a job's documents count only in the directory for which the
    catalog has registered the job, and name no files in another one.
    """
    found = next(filter(None, (place.fullmatch(uri) for place in _PLACES)), None)
    return (uri if found is None else found[1]).encode()


def _aes(key: bytes) -> Any:  # noqa: ANN401 - of a package that an extra brings
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise StorageError(
            "The lake is encrypted, and the package cryptography is not installed where this runs: pip "
            "install cryptography."
        ) from None
    return AESGCM(key)


# Documents for the tasks of one Spark job: rows of a DataFrame, which Spark's shuffles leave on local disks.
#
# They are sealed with a key that is made for the job alone and travels in the tasks' function, by RPC.


def new_task_key() -> bytes:
    """Return a new key for ``sealed_for_task``."""
    return secrets.token_bytes(_KEY_BYTES)


def sealed_for_task(key: bytes, content: bytes) -> bytes:
    """Return the document as only the holder of the key can open it."""
    nonce = secrets.token_bytes(_NONCE_BYTES)
    body: bytes = _aes(key).encrypt(nonce, content, None)
    return nonce + body


def opened_in_task(key: bytes, content: bytes) -> bytes:
    """Return the document that ``sealed_for_task`` was given."""
    plain: bytes = _aes(key).decrypt(content[:_NONCE_BYTES], content[_NONCE_BYTES:], None)
    return plain
