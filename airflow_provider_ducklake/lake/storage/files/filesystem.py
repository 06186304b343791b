"""File systems: one small interface to local disks and object stores.

Remote stores are reached through fsspec where its driver for the scheme is installed, else through
``pyarrow.fs``: a Spark executor may have only the latter. Paths are the catalog's: absolute local paths,
taken literally (a percent sign is a percent sign), or URIs such as ``s3://bucket/key``. Storage options are
those of fsspec and are never logged. None means the lake of the job that this process runs, whose options
came with the process; the options of any other lake are given, be they none (an empty mapping).
"""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import parse_qsl, urlencode, urlsplit

import pyarrow as pa
import pyarrow.fs as pafs

from ...errors import DuckLakeError, StorageError, one_line
from ...format.log_lines import logger
from ...format.names.paths import split_scheme
from .local import make_parents, regular_file, sync_directory

if TYPE_CHECKING:
    from ...format.files import FileKey


# The storage options of a Spark job's lake, which the job's process was started with.
#
# A job's request is a file and its arguments are seen by every user of the machine, so what opens the
# lake's store comes by the environment, which only the same user can read. The variable's name has Spark
# and Airflow hide its value wherever they show settings. Where the environment of a process is no secret,
# such as a pod's, a variable says no more than where the store is.


VARIABLE = "DUCKLAKE_STORAGE_SECRETS"
ADDRESS = "DUCKLAKE_STORAGE_ADDRESS"
_OF_ADDRESS = ("endpoint_url", "account_name", "project")
_OF_CLIENT = ("endpoint_url", "region_name")
_of_tasks: list[dict[str, Any]] = []  # at most one: a process of Spark's runs one task at a time


def as_environment(storage_options: Mapping[str, Any]) -> dict[str, str]:
    """Return the variable that hands options to a process; nothing where there are none.

    >>> as_environment({"key": "id"}), as_environment({})
    ({'DUCKLAKE_STORAGE_SECRETS': '{"key": "id"}'}, {})
    """
    return {VARIABLE: json.dumps(dict(storage_options))} if storage_options else {}


def address_as_environment(storage_options: Mapping[str, Any]) -> dict[str, str]:
    """Return the variable that holds a store's address for a process; none if its options lack it.

    Its value has no quotes: YARN's scripts would take them for their own.

    >>> address_as_environment({"key": "id", "endpoint_url": "http://minio:9000"})
    {'DUCKLAKE_STORAGE_ADDRESS': 'endpoint_url=http%3A%2F%2Fminio%3A9000'}
    """
    client = storage_options.get("client_kwargs") or {}
    found = {name: storage_options.get(name) for name in _OF_ADDRESS}
    found |= {f"client_kwargs.{name}": client.get(name) for name in _OF_CLIENT}
    named = {name: value for name, value in found.items() if isinstance(value, str) and not _is_secret(value)}
    return {ADDRESS: urlencode(named)} if named else {}


def _is_secret(text: str) -> bool:
    return not text or "@" in urlsplit(text).netloc


def _options_in_address(text: str) -> dict[str, Any]:
    """Return the options that a variable's value stands for.

    >>> _options_in_address("account_name=lake&client_kwargs.region_name=eu-west-1")
    {'account_name': 'lake', 'client_kwargs': {'region_name': 'eu-west-1'}}
    """
    options: dict[str, Any] = {}
    for name, value in parse_qsl(text):
        outer, _, inner = name.rpartition(".")
        (options.setdefault(outer, {}) if outer else options)[inner] = value
    return options


def process_options() -> dict[str, Any]:
    """Return the options that this process, or the task in it, was started with; empty where none were."""
    if _of_tasks:
        return dict(_of_tasks[-1])
    if VARIABLE in os.environ:
        options: dict[str, Any] = json.loads(os.environ[VARIABLE])
        return options
    return _options_in_address(os.environ.get(ADDRESS, ""))


def has_secrets() -> bool:
    """Return True if this process was started with all options of the store."""
    return VARIABLE in os.environ


@contextmanager
def options_of_task(options: Mapping[str, Any]) -> Iterator[None]:
    """Give the process options as long as a task of Spark Connect runs: it outlives the session."""
    _of_tasks.append(dict(options))
    try:
        yield
    finally:
        _of_tasks.clear()


# What the errors of file systems mean: why a store refused, and what to do about it.
#
# Pure rules, of the codes that S3 answers with ("Error responses" in the reference of Amazon's S3 API), as
# botocore and Arrow report them, and of the numbers of the operating system's errors.


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a store refused, and what to do; ``{right}`` stands for the right that it asked for."""

    reason: str
    remedy: str


_KEYS = "Correct the connection's storage_options, or what its storage_conn_id names"
_DENIED = Refusal("the store denies it", "Grant {right} for it to the user of these credentials")
_EXPIRED = Refusal(
    "the credentials have expired",
    "Renew them: the next try takes them from the connection. Let temporary ones last as long as the job",
)
_ELSEWHERE = Refusal(
    "the bucket is in another region than the request",
    'Set the region: storage_options {{"client_kwargs": {{"region_name": "…"}}}}',
)
_BUSY = Refusal("the store is overloaded", "Run this again later")
_AWAY = Refusal(
    "the store does not answer", "Check endpoint_url in storage_options, and the network; then run this again"
)
_NO_KEYS = Refusal(
    "there are no credentials for the store",
    "Give the connection storage_options or a storage_conn_id, or this machine a role",
)
# Answers to HEAD have no body, so only their status is known.
_OF_CODES = {
    "accessdenied": _DENIED,
    "403": Refusal(
        "the store denies it, or the credentials are not its own",
        "Check the keys, and grant {right} for it to their user",
    ),
    "nosuchbucket": Refusal("the bucket does not exist", "Correct the path, or create the bucket"),
    "invalidaccesskeyid": Refusal("the store has no such access key", _KEYS),
    "signaturedoesnotmatch": Refusal("the secret does not belong to the access key", _KEYS),
    "invalidtoken": Refusal("the session token is none of this access key", _KEYS),
    "expiredtoken": _EXPIRED,
    "tokenrefreshrequired": _EXPIRED,
    "400": Refusal(
        "the store refuses the request: temporary credentials have expired, or the region is another",
        "Renew the credentials, or set the region in storage_options",
    ),
    "permanentredirect": _ELSEWHERE,
    "authorizationheadermalformed": _ELSEWHERE,
    "301": _ELSEWHERE,
    "requesttimetooskewed": Refusal(
        "the clock of this machine differs from the store's by too much", "Set the clock (NTP)"
    ),
    "slowdown": _BUSY,
    "serviceunavailable": _BUSY,
    "503": _BUSY,
    "networkconnection": _AWAY,
}
# Errors without an answer, by their classes in botocore.
_OF_CLASSES = {
    "NoCredentialsError": _NO_KEYS,
    "PartialCredentialsError": _NO_KEYS,
    "EndpointConnectionError": _AWAY,
    "ConnectTimeoutError": _AWAY,
    "ReadTimeoutError": _AWAY,
    "ConnectionClosedError": _AWAY,
    "HTTPClientError": _AWAY,
}
_FULL = Refusal("the disk is full", "Make room there, or write elsewhere; then run this again")
_QUOTA = Refusal(
    "the quota of this process's user is used up there",
    "Make room, or have the quota raised; then run this again",
)
_OF_NUMBERS = {errno.ENOSPC: _FULL, errno.EDQUOT: _QUOTA}
_RIGHTS = {
    "HeadObject": "s3:GetObject (and s3:ListBucket)",
    "HeadBucket": "s3:ListBucket",
    "ListObjects": "s3:ListBucket",
    "ListObjectsV2": "s3:ListBucket",
    "ListMultipartUploads": "s3:ListBucketMultipartUploads",
    "DeleteObjects": "s3:DeleteObject",
    "CreateMultipartUpload": "s3:PutObject",
    "UploadPart": "s3:PutObject",
    "CompleteMultipartUpload": "s3:PutObject",
    "CopyObject": "s3:GetObject and s3:PutObject",
}
_OF_ARROW = re.compile(r"AWS Error (\w+)(?: \(HTTP status (\d+)\))? during (\w+) operation")
_NOT_FOUND = Refusal("there is no such file, directory or bucket", "Check the path")


def explained(error: BaseException) -> str:
    """Explain why a file system refused and what to do, as sentences without the last full stop."""
    refusal, operation = _refusal(error)
    if refusal is None:
        return f"{_first_line(error)}. Check the path, and your permissions for it"
    return f"{refusal.reason}. {refusal.remedy.format(right=right_for(operation))}"


def reason_of(error: BaseException) -> str:
    """Summarize an error of a file system in a line."""
    refusal, operation = _refusal(error)
    if refusal is None:
        return _first_line(error)
    return refusal.reason + (f" ({right_for(operation)})" if refusal is _DENIED else "")


def reason_of_code(code: str, message: str, operation: str) -> str:
    """Return the reason for a code that stands in an answer to a request for many objects."""
    refusal = _OF_CODES.get(_normal(code))
    if refusal is None:
        return message or code
    return refusal.reason + (f" ({right_for(operation)})" if refusal is _DENIED else "")


def right_for(operation: str) -> str:
    """Return the right of a policy that an operation of S3's API needs.

    >>> right_for("ListObjectsV2"), right_for("PutObject")
    ('s3:ListBucket', 's3:PutObject')
    """
    return _RIGHTS.get(operation, f"s3:{operation}")


def _refusal(error: BaseException) -> tuple[Refusal | None, str]:
    for one in _chain(error):
        code, operation = _answer(one)
        found = (
            _OF_CODES.get(_normal(code))
            or _OF_CLASSES.get(type(one).__name__)
            or (_OF_NUMBERS.get(one.errno or 0) if isinstance(one, OSError) else None)
        )
        if found is not None:
            return found, operation
    return (_NOT_FOUND if isinstance(error, FileNotFoundError) else None), ""


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and what caused it: drivers put errors of Python around those of the store."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _answer(error: BaseException) -> tuple[str, str]:
    """Return the store's code and the operation; empty where the error has none."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):  # botocore's ClientError
        code = (response.get("Error") or {}).get("Code", "")
        return str(code), str(getattr(error, "operation_name", ""))
    found = _OF_ARROW.search(str(error))
    if found is None:
        return "", ""
    return (found[2] or "" if found[1] == "UNKNOWN" else found[1]), found[3]


def _normal(code: str) -> str:
    return code.replace("_", "").lower()


def _first_line(error: BaseException) -> str:
    first, _, rest = str(error).strip().partition("\n")
    if first.endswith(":"):  # Arrow's, of several objects
        first = f"{first} {rest.partition(chr(10))[0]}"
    return (first or type(error).__name__).rstrip(". ")


log = logger(__name__)

StorageOptions: TypeAlias = Mapping[str, Any]

_FSSPEC_NAMES = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "wasbs": "abfs", "az": "abfs", "azure": "abfs"}
_WHOLE_URLS = ("http", "https")  # fsspec has no paths of theirs
_PRIVATE_FILE = 0o600
MOST_READ_BYTES = 2**30  # of a file that is read whole: documents of jobs, deletion vectors


@dataclass(frozen=True, slots=True)
class Location:
    """A place in a file system: ``uri`` is the lake path, ``path`` the same place inside ``filesystem``.

    A Parquet file that is there is encrypted with ``key``; one that is made there gets a key of ``key_bytes``
    bytes: 0 in a lake that is not encrypted, None if it is unknown.
    """

    filesystem: pafs.FileSystem
    path: str
    uri: str
    key: FileKey | None = None
    key_bytes: int | None = None

    @property
    def is_encrypted(self) -> bool:
        """Return True if a Parquet file that is there is encrypted."""
        return self.key is not None or bool(self.key_bytes)

    def with_key(self, key: FileKey | None) -> Location:
        """Return the place of a file with this key in the catalog; a lake without encryption has none."""
        return self if key is None or self.key_bytes == 0 else replace(self, key=key)

    def of_lake(self, key_bytes: int) -> Location:
        """Return the place as one of a lake whose new files have keys of that length; 0: it has none."""
        return replace(self, key_bytes=key_bytes)

    @property
    def is_local(self) -> bool:
        """Return True if the place is on this machine's own file system."""
        return isinstance(self.filesystem, pafs.LocalFileSystem)


def open_filesystem(path: str, storage_options: StorageOptions | None = None) -> Location:
    """Return the file system that holds a lake path, and the path inside it. Nothing is read yet."""
    scheme, rest = split_scheme(path)
    if scheme == "file":
        return Location(pafs.LocalFileSystem(), os.path.abspath(rest), path)  # noqa: PTH100 - resolves no links
    options = process_options() if storage_options is None else dict(storage_options)
    with storage_errors(path, "open"):
        filesystem = _fsspec_filesystem(scheme, options) or _arrow_filesystem(scheme, options)
    if filesystem is None:
        raise StorageError(
            f"Cannot open {path}: no library for {scheme}:// is installed. Install the extra that brings it "
            "(s3, gcs or azure)."
        )
    return Location(filesystem, path if scheme in _WHOLE_URLS else rest, path)


def _fsspec_filesystem(scheme: str, options: dict[str, Any]) -> pafs.FileSystem | None:
    try:
        import fsspec

        kind = fsspec.get_filesystem_class(_FSSPEC_NAMES.get(scheme, scheme))
    except (ImportError, ValueError):  # the driver is not installed, or fsspec lacks the scheme
        return None
    # Others write too: a remembered listing would hide their files.
    return pafs.PyFileSystem(pafs.FSSpecHandler(kind(**{"use_listings_cache": False, **options})))


def _arrow_filesystem(scheme: str, options: dict[str, Any]) -> pafs.FileSystem | None:
    match _FSSPEC_NAMES.get(scheme, scheme):
        case "s3" if hasattr(pafs, "S3FileSystem"):
            return pafs.S3FileSystem(**arrow_s3_options(options))
        case "gs" if hasattr(pafs, "GcsFileSystem"):
            return pafs.GcsFileSystem()
        case _:
            return None


def arrow_s3_options(options: StorageOptions) -> dict[str, Any]:
    """Return fsspec's options for S3 under the names that Arrow has for them."""
    client = options.get("client_kwargs") or {}
    endpoint = options.get("endpoint_url") or client.get("endpoint_url")
    given = {
        "access_key": options.get("key"),
        "secret_key": options.get("secret"),
        "session_token": options.get("token"),
        "region": client.get("region_name"),
        "endpoint_override": endpoint,
        "anonymous": options.get("anon"),
    }
    return {name: value for name, value in given.items() if value}


@contextmanager
def storage_errors(path: str, verb: str) -> Iterator[None]:
    """Turn whatever a file system raises into a StorageError that names the path."""
    try:
        yield
    except DuckLakeError:
        raise
    except Exception as error:
        found = StorageError(f"Cannot {verb} {path}: {explained(error)}.")
        if one_line(path) != path:  # a traceback would show the path in the error's own text as it is
            raise found from None
        raise found from error


def child(location: Location, name: str) -> Location:
    """Return the place ``name`` below a directory."""
    return Location(
        location.filesystem, f"{location.path.rstrip('/')}/{name}", f"{location.uri.rstrip('/')}/{name}"
    )


def exists(path: str, storage_options: StorageOptions | None = None) -> bool:
    """Return True if a file or directory exists."""
    location = open_filesystem(path, storage_options)
    with storage_errors(path, "look at"):
        return bool(location.filesystem.get_file_info(location.path).type != pafs.FileType.NotFound)


def read_bytes(
    path: str, storage_options: StorageOptions | None = None, *, limit: int = MOST_READ_BYTES
) -> bytes:
    """Return the whole content of a file, which has ``limit`` bytes at most."""
    return read_whole(open_filesystem(path, storage_options), limit)


def read_whole(location: Location, limit: int = MOST_READ_BYTES) -> bytes:
    """Do as ``read_bytes``: a file may be as long as its maker wants, and take no place on a disk."""
    with storage_errors(location.uri, "read"), _open_input(location) as stream:
        size = stream.size()
        if size > limit:
            raise StorageError(
                f"Cannot read {location.uri}: it has {size} bytes, and such a file has {limit} at most. Find "
                "out who wrote it, and remove it."
            )
        content: bytes = stream.read(size)
        return content


def write_bytes(
    path: str, content: bytes, storage_options: StorageOptions | None = None, *, private: bool = False
) -> None:
    """Write a file whole or not at all; an existing one is replaced. Missing parent directories are made.

    ``private`` keeps a local file to its owner (mode 0600); object stores have their own rules.
    """
    location = open_filesystem(path, storage_options)
    with storage_errors(path, "write"):
        if location.is_local:
            _write_local(Path(location.path), content, private=private)
            return
        with location.filesystem.open_output_stream(location.path) as stream:
            stream.write(content)


def _write_local(path: Path, content: bytes, *, private: bool) -> None:
    make_parents(path)
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
    mode = _PRIVATE_FILE if private else 0o666
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
        sync_directory(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def make_directory(path: str, storage_options: StorageOptions | None = None) -> None:
    """Make a directory and its parents where the store has directories."""
    location = open_filesystem(path, storage_options)
    if location.is_local:  # an object store needs none, and making one may try to make the bucket
        with storage_errors(path, "make directory"):
            Path(location.path).mkdir(parents=True, exist_ok=True)


def delete_file(path: str, storage_options: StorageOptions | None = None) -> bool:
    """Delete a file; return whether it was there."""
    return delete_file_at(open_filesystem(path, storage_options))


def delete_file_at(location: Location) -> bool:
    """Delete a file; return whether it was there."""
    with storage_errors(location.uri, "delete"):
        if location.filesystem.get_file_info(location.path).type == pafs.FileType.NotFound:
            return False
        remover_of(location)(location.path)
        return True


def remover_of(location: Location) -> Callable[[str], object]:
    """Return a function that deletes one file of a file system; fsspec's for several may hide failures."""
    filesystem = fsspec_of(location)
    if filesystem is not None:
        return filesystem.rm_file  # type: ignore[no-any-return]
    return os.unlink if location.is_local else location.filesystem.delete_file


def file_sizes(path: str, storage_options: StorageOptions | None = None) -> dict[str, int]:
    """Return the sizes of all files below a directory by their paths from there; none where it is missing."""
    location = open_filesystem(path, storage_options)
    root = location.path.rstrip("/")
    with storage_errors(path, "list"):
        infos = location.filesystem.get_file_info(
            pafs.FileSelector(root, allow_not_found=True, recursive=True)
        )
    return {
        info.path.removeprefix(f"{root}/"): int(info.size)
        for info in infos
        if info.type == pafs.FileType.File
    }


def check_writable(data_path: str, storage_options: StorageOptions | None = None) -> None:
    """Write a small object below ``data_path`` and remove it again.

    A local directory that does not exist is not made: it is enough that it could be.
    """
    location = open_filesystem(data_path, storage_options)
    if location.is_local and not Path(location.path).exists():
        _check_can_be_made(Path(location.path))
        return
    probe = f"{data_path.rstrip('/')}/.ducklake-write-check-{secrets.token_hex(8)}"
    write_bytes(probe, b"", storage_options)
    with suppress(StorageError):
        delete_file(probe, storage_options)


def _check_can_be_made(directory: Path) -> None:
    parent = next(path for path in directory.parents if path.exists())
    if not (parent.is_dir() and os.access(parent, os.W_OK | os.X_OK)):
        raise StorageError(
            f"Cannot make the directory {directory}: {parent} is not a directory that this process may "
            "write to. Create the directory and make it writable for the user that runs the tasks."
        )


def open_input(location: Location) -> pa.NativeFile:
    """Return the file for random reads."""
    with storage_errors(location.uri, "read"):
        return _open_input(location)


def _open_input(location: Location) -> pa.NativeFile:
    """Open a file; Arrow would first ask fsspec whether there is one, which says no to every error."""
    filesystem = fsspec_of(location)
    if filesystem is not None:
        return pa.PythonFile(filesystem.open(location.path, "rb"), mode="r")
    if not location.is_local:
        return location.filesystem.open_input_file(location.path)
    with regular_file(location.path) as opened:
        return location.filesystem.open_input_file(opened)


def fsspec_of(location: Location) -> Any:  # noqa: ANN401
    """Return the fsspec file system of a location; None: it is Arrow's own."""
    handler = getattr(location.filesystem, "handler", None)
    return handler.fs if isinstance(handler, pafs.FSSpecHandler) else None


def bucket_and_key(filesystem: Any, path: str) -> tuple[str, str]:  # noqa: ANN401 - s3fs
    """Split a path of s3fs as that does, but for versions; the name of an access point has a slash."""
    path = path.lstrip("/")
    bucket: str = filesystem.split_path(path)[0]
    return bucket, path[len(bucket) + 1 :]
