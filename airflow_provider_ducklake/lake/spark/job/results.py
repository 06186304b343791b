"""The result documents of a job, which later releases read, too.

The files of a result lie in parts. A staged write has its table as far as a commit needs it: the columns and
partition keys are those of the result; sort keys and the options of an existing table are left out. A job
that failed leaves its error instead: the class and what that is made of, short and of plain kinds. Whatever
such a document says, as others may write where it lies, what is read is an error of ours with a text of
bounded length.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from ... import errors
from ...errors import DuckLakeError, SparkJobError
from ...format.partitioning import PartitionField, PartitionSpec
from ...format.snapshots import PartitionId, SchemaId, Snapshot, TableId, TableSnapshot
from ...planning.writing.staged import StagedWrite, Target
from ...planning.writing.write import NewDeletes, NewTable, NewTableAndSchema, WriteResult

if TYPE_CHECKING:
    from ...format.files import DataFile
    from ...format.names.identifiers import QualifiedName
    from ...format.schema import TableSchema
    from ...planning.reading.predicates import Predicate


@dataclass(frozen=True, slots=True)
class ResultPart:
    """Files of a result."""

    job_id: str
    data_files: tuple[DataFile, ...]


@dataclass(frozen=True, slots=True)
class DeletesPart:
    """Rows that a job deletes in files, and where they lie in the catalog."""

    job_id: str
    deletes: tuple[NewDeletes, ...]
    inlined: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Summary:
    schema: TableSchema
    partition_fields: tuple[PartitionField, ...]
    rows_written: int
    details: Mapping[str, str | int | float | None]


def summary(result: WriteResult | _Summary) -> dict[str, Any]:
    """Return everything of a result but its files."""
    return {name: getattr(result, name) for name in _Summary.__dataclass_fields__}


@dataclass(frozen=True, slots=True)
class WrittenResult(_Summary):
    """A result, with the names of its parts."""

    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Batch(_Summary):
    """The record of a batch of a stream."""

    query_id: str
    batch_id: int
    job_id: str
    data_files: tuple[DataFile, ...]


@dataclass(frozen=True, slots=True)
class Done:
    """A job is complete."""

    job_id: str
    results: tuple[WrittenResult, ...]


@dataclass(frozen=True, slots=True)
class RowChangesDone(Done):
    """A job that changes rows is complete; ``deletes`` are the names of its other parts.

    ``matching`` as in ``RowChanges``.
    """

    deletes: tuple[str, ...]
    matching: Predicate


@dataclass(frozen=True, slots=True)
class ExistingTable:
    """The table of a staged write that was there before."""

    snapshot: Snapshot
    table_id: TableId
    uuid: str
    schema_id: SchemaId
    name: QualifiedName
    root: str
    partition_id: PartitionId | None


StagedTarget: TypeAlias = NewTable | NewTableAndSchema | ExistingTable


@dataclass(frozen=True, slots=True)
class StagedWriteDocument:
    """A staged write; its result lies beside it."""

    job_id: str
    directory: str
    verb: str
    target: NewTable | NewTableAndSchema | ExistingTable

    @classmethod
    def of(cls, staged: StagedWrite) -> StagedWriteDocument:
        """Build the document of a staged write."""
        return cls(staged.job_id, staged.directory, staged.verb, staged_target(staged.target))

    def staged(self, result: WriteResult) -> StagedWrite:
        """Return the staged write again."""
        target = _table(self.target, result) if isinstance(self.target, ExistingTable) else self.target
        return StagedWrite(self.job_id, self.directory, self.verb, target, result)


def staged_target(target: Target) -> StagedTarget:
    """Build the part of a staged write's document that identifies its table."""
    if isinstance(target, NewTable):
        return target
    return ExistingTable(
        snapshot=target.snapshot,
        table_id=target.table_id,
        uuid=target.table_uuid,
        schema_id=target.schema_id,
        name=target.name,
        root=target.root,
        partition_id=target.partition_spec.id if target.partition_spec else None,
    )


def _table(target: ExistingTable, result: WriteResult) -> TableSnapshot:
    spec_id = target.partition_id
    return TableSnapshot(
        snapshot=target.snapshot,
        table_id=target.table_id,
        table_uuid=target.uuid,
        schema_id=target.schema_id,
        name=target.name,
        schema=result.schema,
        root=target.root,
        partition_spec=None if spec_id is None else PartitionSpec(result.partition_fields, spec_id),
    )


Json: TypeAlias = dict[str, Any]

LONGEST = 10_000  # characters of a text
MOST = 200  # entries of a list, and one that counts the others
_MOST_ARGUMENTS = 8
_OF_COMMITS = (errors.CommitError, errors.CommitStateUnknownError)  # a job commits nothing


def encode_error(error: DuckLakeError) -> Json:
    """Return an error of ours as its class name and constructor arguments, none longer than is read again."""
    return {"error": type(error).__name__, "args": [_encoded(one) for one in error.args]}


def _encoded(argument: object) -> object:
    if not isinstance(argument, (list, tuple)):
        return _plain(argument)
    left = len(argument) - MOST
    return [_plain(one) for one in argument[:MOST]] + ([f"and {left} more"] if left > 0 else [])


def _plain(value: object) -> object:
    if value is None or isinstance(value, (int, float, bool)):
        return value
    text = str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 2]} …"


def decode_error(item: Json) -> DuckLakeError:
    """Return the same exception again; a class unknown here, or of a commit, becomes ``SparkJobError``."""
    name, arguments = _decoded_entry(item["error"]), [_decoded(one) for one in item["args"]]
    if len(arguments) > _MOST_ARGUMENTS:
        raise ValueError(f"{len(arguments)} arguments")
    class_ = getattr(errors, str(name), None)
    if not (isinstance(class_, type) and issubclass(class_, DuckLakeError)) or issubclass(
        class_, _OF_COMMITS
    ):
        return SparkJobError(f"{name}: {', '.join(map(str, arguments))}")
    error = class_(*arguments)
    str(error)  # whose arguments are of other kinds than its text takes fails here, not where it is shown
    return error


def _decoded(argument: object) -> object:
    if not isinstance(argument, list):
        return _decoded_entry(argument)
    if len(argument) > MOST + 1:
        raise ValueError(f"a list of {len(argument)} entries")
    return tuple(_decoded_entry(one) for one in argument)


def _decoded_entry(value: object) -> object:
    if isinstance(value, str):
        if len(value) > LONGEST:
            raise ValueError(f"a text of {len(value)} characters")
        return value.encode(errors="replace").decode()  # half a surrogate pair cannot be logged
    if value is None or isinstance(value, (int, float, bool)):
        return value
    raise TypeError(f"a {type(value).__name__} among the arguments")
