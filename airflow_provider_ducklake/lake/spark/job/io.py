"""Write a job's request and read its result, as files in the job's private directory.

The operator writes ``request.json``. The job writes ``part-00000.json``, … (each after the files it names),
where rows were deleted ``deletes-00000.json``, … too, and at last ``_DONE``, or else ``_ERROR.json``. Where
the commit is left to another task, the operator adds ``stage.json`` and keeps it all until then. Storage
options are fsspec's.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias, TypeVar
from uuid import UUID

from ...errors import DuckLakeError, InvalidInputError, SparkJobError, StorageError, UntrustedValueError
from ...format.names.paths import JOB_ID, is_job_directory, job_directory
from ...planning.writing.staged import StagedBatch, StagedWrite, Target
from ...planning.writing.write import JobTarget, NewTable, RowChanges, WritePlan, WriteResult, digest
from ...storage.files.filesystem import delete_file, exists, file_sizes, read_bytes, write_bytes
from ...storage.files.listing import delete_by_name, delete_tree
from ...storage.files.parallel import in_threads
from ...storage.files.writing import lacks_seal, opened, sealed
from ...transaction.changes import MergedFile, RewrittenFile
from . import documents
from . import results as docs
from .codec import DocumentError, Json, decode, dumps, encode, loads
from .documents import StorageOptions
from .request import CompactionSource, JobRequest, OverwriteSource, RowChangeSource

if TYPE_CHECKING:
    from ...planning.upkeep.compaction import Bin


REQUEST, DONE, ERROR, STAGE = "request.json", "_DONE", "_ERROR.json", "stage.json"
PACKAGE = "package.jar"  # a zip; the name is what a cluster asks for
_STAGE_URI = re.compile(rf".*/ducklake-({JOB_ID})/stage\.json", re.DOTALL)
FILES_PER_PART = 1_000
_T = TypeVar("_T")
_REQUEST_VERSION = 6  # of requests, which are read by the release that writes them


def request_uri(directory: str) -> str:
    """Return the URI of the request of the job in ``directory``: the job's only argument."""
    return directory + REQUEST


def has_request(directory: str, storage_options: StorageOptions = None) -> bool:
    """Return True if the request of the job in ``directory`` is there: it is written whole, or not at all."""
    return exists(request_uri(directory), storage_options)


def write_request(
    request: JobRequest, storage_options: StorageOptions = None, *, is_sealed: bool = True
) -> str:
    """Write the request (mode 0600 locally) and return its URI; sealed if this process has a key for it.

    Not ``is_sealed``: the job's driver could not open it.
    """
    uri = request_uri(request.directory)
    content = _bytes_of(request)
    write_bytes(uri, sealed(uri, content) if is_sealed else content, storage_options, private=True)
    return uri


def write_package(request: JobRequest, content: bytes, storage_options: StorageOptions = None) -> str:
    """Write the job's code beside its request, for a cluster that fetches it there; return its URI."""
    uri = request.directory + PACKAGE
    write_bytes(uri, content, storage_options)
    return uri


def _bytes_of(request: JobRequest) -> bytes:
    return dumps(encode(request, JobRequest), _REQUEST_VERSION)


def request_digest(request: JobRequest) -> str:
    """Compute the digest of the request: a job refuses a request that was changed."""
    return documents.digest_of_bytes(_bytes_of(request))


def read_request(
    uri: str, expected_digest: str | None = None, storage_options: StorageOptions = None
) -> JobRequest:
    """Return the request at ``uri``."""
    content = opened(uri, read_bytes(uri, storage_options), is_proven=expected_digest is not None)
    if expected_digest is not None and documents.digest_of_bytes(content) != expected_digest:
        raise UntrustedValueError(
            uri,
            documents.digest_of_bytes(content),
            f"is not the digest of the request that was submitted, {expected_digest}",
        )
    with documents.reading(uri):
        request = decode(loads(content, uri, _REQUEST_VERSION), JobRequest)
    if uri != request_uri(request.directory):
        raise SparkJobError(
            f"{uri} is the request of a job in {request.directory}, but a request must lie in its own job's "
            "directory."
        )
    return request


def write_results(
    request: JobRequest, results: Sequence[WriteResult], storage_options: StorageOptions = None
) -> None:
    """Write the parts, then ``_DONE``; call it when every data file is complete.

    There is a result for each of the request's plans.
    """
    done = docs.Done(request.job_id, _write_parts(request, results, storage_options))
    documents.write_document(request.directory + DONE, done, storage_options)


def complete_results(
    request: JobRequest, results: Sequence[WriteResult], storage_options: StorageOptions = None
) -> None:
    """Write what ``write_results`` does, unless the job has done so itself, and sealed it."""
    uri = request.directory + DONE
    if not exists(uri, storage_options) or lacks_seal(uri, read_bytes(uri, storage_options)):
        write_results(request, results, storage_options)


def write_row_changes(
    request: JobRequest, changes: RowChanges, storage_options: StorageOptions = None
) -> None:
    """Write what a job deleted, and the rest as ``write_results`` does."""
    names = []
    for number, start in enumerate(range(0, max(len(changes.deletes), 1), FILES_PER_PART)):
        names.append(f"deletes-{number:05d}.json")
        deletes = changes.deletes[start : start + FILES_PER_PART]
        part = docs.DeletesPart(request.job_id, deletes, () if number else changes.inlined)
        documents.write_document(request.directory + names[-1], part, storage_options)
    written = _write_parts(request, (changes.updated, changes.inserted), storage_options)
    done = docs.RowChangesDone(request.job_id, written, tuple(names), changes.matching)
    documents.write_document(request.directory + DONE, done, storage_options)


def _write_parts(
    request: JobRequest, results: Sequence[WriteResult], storage_options: StorageOptions
) -> tuple[docs.WrittenResult, ...]:
    count, written = 0, []
    for result in results:
        names: list[str] = []
        for start in range(0, len(result.data_files), FILES_PER_PART):
            names.append(f"part-{count:05d}.json")
            count += 1
            part = docs.ResultPart(request.job_id, result.data_files[start : start + FILES_PER_PART])
            documents.write_document(request.directory + names[-1], part, storage_options)
        written.append(docs.WrittenResult(**docs.summary(result), parts=tuple(names)))
    return tuple(written)


def write_error(request: JobRequest, error: DuckLakeError, storage_options: StorageOptions = None) -> None:
    """Write why the job failed, so that the operator can raise the same exception.

    Nothing is written if the request is gone: the operator has discarded the job and removed the directory.
    """
    if not has_request(request.directory, storage_options):
        return
    document = {"job_id": request.job_id, **docs.encode_error(error)}
    documents.write_json(request.directory + ERROR, document, storage_options)


def read_results(request: JobRequest, storage_options: StorageOptions = None) -> tuple[WriteResult, ...]:
    """Read the job's results, one for each of the request's plans."""
    return _results_of(request, _done_of(request, storage_options), storage_options)


def read_outcome(
    request: JobRequest, storage_options: StorageOptions = None
) -> tuple[WriteResult, ...] | RowChanges:
    """Read the job's results, or its row changes if it makes any, with the errors of ``read_results``."""
    if isinstance(request.source, RowChangeSource | OverwriteSource):
        return read_row_changes(request, storage_options)
    return read_results(request, storage_options)


def read_row_changes(request: JobRequest, storage_options: StorageOptions = None) -> RowChanges:
    """Return all that a job did that changes rows, with the errors of ``read_results``."""
    done = _done_of(request, storage_options)
    updated, inserted = _results_of(request, done, storage_options)
    uri, job_id = request.directory + DONE, request.job_id
    with documents.reading(uri):
        if not isinstance(done, docs.RowChangesDone):
            raise DocumentError("deletes is missing")
        names = documents.checked_names(done.deletes, uri)
        documents.check_filter(done.matching, request.plans[0].target)
    parts = [
        _read_part(request.directory + name, job_id, docs.DeletesPart, storage_options) for name in names
    ]
    deletes = tuple(one for part in parts for one in part.deletes)
    inlined = tuple(row_id for part in parts for row_id in part.inlined)
    for named in ([one.path for one in deletes], [one.data_file_id for one in deletes], inlined):
        documents.check_once(named, uri)
    documents.check_own_files((one.path for one in deletes), request.directory, uri)
    return RowChanges(deletes, inlined, updated, inserted, done.matching)


def _done_of(request: JobRequest, storage_options: StorageOptions) -> docs.Done:
    done = _read_done(request.directory, request.job_id, storage_options)
    if done is None:
        raise read_error(request, storage_options) or SparkJobError(
            f"Job {request.job_id} ended without a result: {request.directory}{DONE} does not exist. "
            "Nothing was committed; look for the cause in the Spark log above."
        )
    return done


def _read_done(directory: str, job_id: str, storage_options: StorageOptions) -> docs.Done | None:
    """Read the document that the job wrote at its end; None: there is none."""
    uri = directory + DONE
    document = documents.read_json(uri, job_id, storage_options)
    if document is None:
        return None
    with documents.reading(uri):
        return decode(document, docs.RowChangesDone if "deletes" in document else docs.Done)


def _results_of(
    request: JobRequest, done: docs.Done, storage_options: StorageOptions
) -> tuple[WriteResult, ...]:
    results = _read_results(done, request.directory, storage_options)
    if len(results) != len(request.plans):
        raise SparkJobError(
            f"Job {request.job_id} left {len(results)} results for {len(request.plans)} queries. Nothing "
            "was committed."
        )
    uri = request.directory + DONE
    for plan, result in zip(request.plans, results, strict=True):
        documents.check_own_files(_paths(result), job_directory(plan.root, request.writer_id), uri)
        documents.check_defaults(result.schema, plan.schema, uri)
    documents.check_once(_paths(*results), uri)
    return results


def _read_results(
    done: docs.Done, directory: str, storage_options: StorageOptions
) -> tuple[WriteResult, ...]:
    with documents.reading(directory + DONE):
        return tuple(_result(one, directory, done.job_id, storage_options) for one in done.results)


def _result(
    done: docs.WrittenResult, directory: str, job_id: str, storage_options: StorageOptions
) -> WriteResult:
    names = documents.checked_names(done.parts, directory + DONE)
    parts = [_read_part(directory + name, job_id, docs.ResultPart, storage_options) for name in names]
    data_files = tuple(file for part in parts for file in part.data_files)
    result = WriteResult(**docs.summary(done), data_files=data_files)
    documents.check_result(result, directory + DONE)
    counted = sum(file.record_count for file in data_files)
    if counted != result.rows_written:
        raise SparkJobError(
            f"Job {job_id} reported {result.rows_written} rows, but its files hold {counted}. Nothing was "
            "committed."
        )
    return result


def _paths(*results: WriteResult) -> Iterator[str]:
    return (file.path for result in results for file in result.data_files)


def read_error(request: JobRequest, storage_options: StorageOptions = None) -> DuckLakeError | None:
    """Return the error that the job left, or None: what to raise when spark-submit failed."""
    document = documents.read_json(request.directory + ERROR, request.job_id, storage_options)
    if document is None:
        return None
    with documents.reading(request.directory + ERROR):
        return docs.decode_error(document)


def delete_job_files(request: JobRequest, storage_options: StorageOptions = None) -> None:
    """Delete the job's own JSON files and leave its data files: the clean-up after a commit."""
    _delete_job_files(request.directory, request.job_id, storage_options)


def _delete_job_files(directory: str, job_id: str, storage_options: StorageOptions) -> None:
    try:
        names = _names(directory, job_id, storage_options)
    except (SparkJobError, UntrustedValueError):  # the document that lists them is damaged: by their names
        names = [name for name in file_sizes(directory, storage_options) if documents.is_document(name)]
    for name in [REQUEST, PACKAGE, ERROR, *names, DONE]:
        delete_file(directory + name, storage_options)


def _names(directory: str, job_id: str, storage_options: StorageOptions) -> list[str]:
    """Return the names of the documents that belong to a job's result, as far as it is there."""
    done = documents.read_json(directory + DONE, job_id, storage_options)
    if done is None:
        return []
    with documents.reading(directory + DONE):
        parts = [name for one in done["results"] for name in one["parts"]]
        return documents.checked_names([*parts, *done.get("deletes", [])], directory + DONE)


def delete_job_directories(
    request: JobRequest, storage_options: StorageOptions = None, *, has_files: bool = True
) -> None:
    """Delete everything the job wrote: the clean-up when its files will certainly never be committed.

    Folders of partitions are listed for its files, if it ``has_files``.
    """
    for directory in request.directories:
        delete_tree(directory, storage_options)
    partitioned = [plan for plan in request.plans if plan.partition_fields or plan.partition_by]
    for root, prefix in {(plan.root, plan.prefix) for plan in partitioned if has_files}:
        delete_by_name(root, prefix, storage_options)


def delete_own_directory(directory: str, job_id: str, storage_options: StorageOptions = None) -> None:
    """Delete the directory of a job that left no request to say what else it wrote."""
    if not is_job_directory(directory, job_id):
        raise UntrustedValueError("the job's directory", directory, f"is not that of job {job_id}")
    delete_tree(directory, storage_options)


def write_stage(staged: StagedWrite, storage_options: StorageOptions = None) -> str:
    """Write down what a job's result is for, and return where: the write waits for its commit."""
    uri = stage_uri(staged.directory)
    documents.write_document(uri, docs.StagedWriteDocument.of(staged), storage_options)
    return uri


def stage_uri(directory: str) -> str:
    """Return the URI of the staged write of the job in ``directory``."""
    return directory + STAGE


def job_of_stage(uri: str) -> str:
    """Return the job whose staged write lies at ``uri``."""
    match = _STAGE_URI.fullmatch(uri)
    if match is None:
        raise InvalidInputError(
            f"{uri!r} is not a staged write. Give the return value of a task with stage_only=True, or its "
            "'staged'."
        )
    return match[1]


def target_of_stage(target: Target) -> JobTarget:
    """Return the target of a staged write: all that its document has of the table."""
    table_id = None if isinstance(target, NewTable) else target.table_id
    return JobTarget(table_id, target.root, digest(encode(docs.staged_target(target), docs.StagedTarget)))


def read_stage(uri: str, storage_options: StorageOptions = None) -> StagedWrite:
    """Return a staged write that is complete: all of its files are there, and as long as they were.

    The caller, who has the catalog, checks that it is for the table that its job was registered for.
    """
    directory, job_id = uri.removesuffix(STAGE), job_of_stage(uri)
    document = documents.read_json(uri, job_id, storage_options)
    done = _read_done(directory, job_id, storage_options)
    if document is None or done is None:
        raise _incomplete(uri, uri if document is None else directory + DONE)
    results = _read_results(done, directory, storage_options)
    with documents.reading(uri):
        (result,) = results
        staged = decode(document, docs.StagedWriteDocument).staged(result)
        target = staged.target
        if staged.directory != directory or job_directory(target.root, staged.job_id) != directory:
            problem = f"is not what job {staged.job_id} was registered for"
            raise UntrustedValueError(uri, f"{target.name} in {target.root}", problem)
        if isinstance(target, NewTable):
            documents.check_defaults(result.schema, None, directory + DONE)
    documents.check_own_files(_paths(result), directory, directory + DONE)
    documents.check_once(_paths(result), directory + DONE)
    missing = documents.incomplete_file(staged.result.data_files, storage_options, directory)
    if missing is not None:
        raise _incomplete(uri, missing)
    return staged


def _incomplete(uri: str, path: str) -> StorageError:
    return StorageError(
        f"The staged write {uri} is incomplete: {path} is missing or truncated, perhaps because of a "
        "clean-up. Clear the task that staged it."
    )


def delete_stage_files(uri: str, storage_options: StorageOptions = None) -> None:
    """Delete the JSON files of a staged write and leave its data files: the clean-up after its commit."""
    _delete_job_files(uri.removesuffix(STAGE), job_of_stage(uri), storage_options)
    delete_file(uri, storage_options)  # at last: while it is there, the clean-up can be done again


def delete_stage(uri: str, storage_options: StorageOptions = None) -> None:
    """Delete a staged write with its data files."""
    job_id, directory = job_of_stage(uri), uri.removesuffix(STAGE)
    try:
        paths = _paths_left(directory, job_id, storage_options)
    except (SparkJobError, UntrustedValueError):
        root, _, own = directory.removesuffix("/").rpartition("/")
        delete_by_name(f"{root}/", f"{own}-", storage_options)  # in folders of partitions
        delete_tree(directory, storage_options)
        raise
    for path in paths:
        if not path.startswith(directory):  # in the folder of its partition
            delete_file(path, storage_options)
    delete_tree(directory, storage_options)


def _paths_left(directory: str, job_id: str, storage_options: StorageOptions) -> list[str]:
    """Return the paths of a job's data files, as far as its result is still there."""
    found: list[str] = []
    for name in _names(directory, job_id, storage_options):
        part = documents.read_json(directory + name, job_id, storage_options)
        with documents.reading(directory + name):
            paths = [item["path"] for item in (part or {}).get("data_files", [])]
        documents.check_own_files(paths, directory, directory + name)
        found += paths
    return found


def _read_named(path: str, job_id: str, storage_options: StorageOptions) -> Json:
    document = documents.read_json(path, job_id, storage_options)
    if document is None:
        raise SparkJobError(
            f"{path} is missing, although {DONE} names it. Job {job_id} was not committed; run its task "
            "again."
        )
    return document


def _read_part(path: str, job_id: str, type_: type[_T], storage_options: StorageOptions) -> _T:
    document = _read_named(path, job_id, storage_options)
    with documents.reading(path):
        return decode(document, type_)


# The records of a stream's batches, as files in the checkpoint of its query.
#
# ``metadata`` is Spark's own and holds the query's id: another one where the checkpoint was removed and
# made again. Ours lie in ``ducklake/``: ``stream.json`` says whose checkpoint it is, ``<query id>/<batch
# id>.json`` is the record of a batch, there from the moment when its files are complete. Records go when
# their batches are committed; the newest one stays, as Spark may run that batch again. Paths of checkpoints
# end in ``/``, storage options are fsspec's.


_MOST_BYTES = 2**16  # of Spark's own file, which has an id


@dataclass(frozen=True, slots=True)
class StreamOwner:
    """The table that a stream's rows go to, and the task that brings them there."""

    table: str
    table_uuid: str
    task: str


def claim(checkpoint: str, owner: StreamOwner, storage_options: StorageOptions = None) -> None:
    """Record the owner of a checkpoint that has none; refuse another owner."""
    uri = f"{checkpoint}ducklake/stream.json"
    if not exists(uri, storage_options):
        documents.write_document(uri, owner, storage_options)
        return
    known = documents.read_document(
        uri, StreamOwner, storage_options, is_proven=True
    )  # all it can do is to refuse
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
    """Return the id of the query whose checkpoint it is; None: no query has begun there."""
    uri = f"{checkpoint}metadata"
    if not exists(uri, storage_options):
        return None
    try:
        return str(UUID(json.loads(read_bytes(uri, storage_options, limit=_MOST_BYTES))["id"]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise SparkJobError(f"{uri} does not hold the id of a streaming query, which is a UUID.") from None


def record_uri(checkpoint: str, query_id: str, batch_id: int) -> str:
    """Return the URI of the record of a batch."""
    return f"{_folder(checkpoint, query_id)}{batch_id}{_STAGED}"


def _folder(checkpoint: str, query_id: str) -> str:
    return f"{checkpoint}ducklake/{query_id}/"


_STAGED, _DONE = ".json", ".done"


def batch_ids(
    checkpoint: str, query_id: str, storage_options: StorageOptions = None, *, is_staged: bool = False
) -> list[int]:
    """Return the batches of a query that have a record, ascending.

    The record of the newest batch that is done stays, empty, for Spark may run that batch again;
    ``is_staged`` leaves it out.
    """
    names = file_sizes(_folder(checkpoint, query_id), storage_options)
    parts = (name.rpartition(".") for name in names)
    endings = (_STAGED,) if is_staged else (_STAGED, _DONE)
    return sorted({int(stem) for stem, _, end in parts if stem.isdecimal() and f".{end}" in endings})


def finish_batches(
    checkpoint: str, query_id: str, ids: Collection[int], storage_options: StorageOptions = None
) -> None:
    """Leave of the records of committed batches that the newest one is done; the data files stay."""
    folder = _folder(checkpoint, query_id)
    stems = {name.removesuffix(_DONE) for name in file_sizes(folder, storage_options) if name.endswith(_DONE)}
    newest = max(*ids, *(int(stem) for stem in stems if stem.isdecimal()), -1)
    write_bytes(f"{folder}{newest}{_DONE}", b"{}", storage_options)
    for name in (*(f"{one}{_STAGED}" for one in ids), *(f"{stem}{_DONE}" for stem in stems - {str(newest)})):
        delete_file(folder + name, storage_options)


def write_batch(checkpoint: str, batch: StagedBatch, storage_options: StorageOptions = None) -> None:
    """Write the record of a batch, in place of another one of the same batch; its files are complete."""
    record = docs.Batch(
        **docs.summary(batch.result),
        query_id=batch.query_id,
        batch_id=batch.batch_id,
        job_id=batch.job_id,
        data_files=batch.result.data_files,
    )
    documents.write_document(record_uri(checkpoint, batch.query_id, batch.batch_id), record, storage_options)


def read_batch(
    checkpoint: str, query_id: str, batch_id: int, root: str, storage_options: StorageOptions = None
) -> StagedBatch:
    """Return a batch by its record; ``root`` is the directory of the stream's table."""
    uri = record_uri(checkpoint, query_id, batch_id)
    found = documents.read_document(uri, docs.Batch, storage_options)
    with documents.reading(uri):
        if (found.query_id, found.batch_id) != (query_id, batch_id):
            raise SparkJobError(f"{uri} is the record of another batch. Nothing was committed.")
        result = WriteResult(**docs.summary(found), data_files=found.data_files)
        documents.check_result(result, uri)
        job_id = str(UUID(found.job_id))
    paths = [file.path for file in found.data_files]
    documents.check_own_files(paths, job_directory(root, job_id), uri)
    documents.check_once(paths, uri)
    return StagedBatch(query_id, batch_id, job_id, result)


def check_files(checkpoint: str, batch: StagedBatch, storage_options: StorageOptions = None) -> None:
    """Look whether the files of a batch are all there, and as long as they were."""
    path = documents.incomplete_file(batch.result.data_files, storage_options)
    if path is not None:
        uri = record_uri(checkpoint, batch.query_id, batch.batch_id)
        raise StorageError(
            f"Batch {batch.batch_id} of the stream is incomplete: {path} is missing or truncated, perhaps "
            f"because of a clean-up, and Spark will not read its rows again. Remove {uri} to continue "
            "without them, or use a new checkpoint, which starts at the first row."
        )


# Bins that became files: where such a file lies, and its record, there from the moment when it is complete.
#
# Directories end in ``/``, storage options are fsspec's.


CompactedFile: TypeAlias = MergedFile | RewrittenFile
_FOLDER = "bins/"


def file_path(files: Bin, plan: WritePlan, source: CompactionSource) -> str:
    """Choose the path of a bin's file: in the folder of its partition, if its keys are the current ones."""
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
    documents.write_json(uri, encode(compacted, CompactedFile))


def read_records(directory: str, storage_options: StorageOptions = None) -> dict[str, CompactedFile]:
    """Return the files that are complete, by the URIs of their records; oldest sources first."""
    folder = directory + _FOLDER
    uris = [folder + name for name in file_sizes(folder, storage_options) if name.endswith(".json")]

    def read(uri: str) -> CompactedFile:
        with documents.reading(uri):
            found: CompactedFile = decode(
                loads(opened(uri, read_bytes(uri, storage_options)), uri), CompactedFile
            )
        documents.check_own_files(() if found.file is None else (found.file.path,), directory, uri)
        return found

    found = in_threads(read, uris)
    documents.check_once((one.file.path for one in found if one.file is not None), folder)
    records = zip(uris, found, strict=True)
    return dict(sorted(records, key=lambda one: one[1].sources))


def delete_record(uri: str, storage_options: StorageOptions = None) -> None:
    """Forget a record; its file is the lake's, or gone."""
    delete_file(uri, storage_options)
