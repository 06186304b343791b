"""Writes and batches that wait for their commit, and the changes that commit several as one snapshot."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from ...errors import InvalidInputError, TransactionConflictError
from ...format.files import DataFile, LiveDataFile
from ...format.partitioning import PartitionSpec
from ...format.snapshots import DataFileId, SchemaId, SnapshotId, TableId, TableSnapshot
from ...transaction.changes import AppendFiles, Change, NewSchemaRef, NewTableRef
from .write import (
    NewTable,
    NewTableAndSchema,
    WriteResult,
    append_to_existing,
    create_and_append,
    placed_below,
    same_columns,
)

if TYPE_CHECKING:
    from ...format.names.identifiers import FoldedName, QualifiedName


Target: TypeAlias = TableSnapshot | NewTable
_NO_SCHEMA_YET, _NO_TABLE_YET, _NO_FILE_YET = SchemaId(-1), TableId(-1), DataFileId(-1)


@dataclass(frozen=True, slots=True)
class StagedWrite:
    """Files of a job in its ``directory``, written for ``target`` and not committed yet."""

    job_id: str
    directory: str
    verb: str
    target: Target
    result: WriteResult

    @property
    def base(self) -> SnapshotId:
        """The snapshot that the write was planned on: it conflicts with what came after it."""
        return self.target.snapshot.id

    @property
    def creates(self) -> FoldedName | None:
        """The name of the table that it creates, as names are compared; None where the table was there."""
        return self.target.name.folded if isinstance(self.target, NewTable) else None


def plan_change_sets(
    staged: Sequence[StagedWrite], made_since: Mapping[FoldedName, TableSnapshot]
) -> Iterator[tuple[SnapshotId, tuple[Change, ...]]]:
    """Yield the changes of each write with the snapshot they are planned on.

    Writes that create one table, with the same columns and partitioning, create it together. ``made_since``
    are tables that others created in the meantime: they take the rows if they have the same columns.
    """
    _refuse_twice(staged)
    creators: dict[FoldedName, tuple[StagedWrite, NewTableRef]] = {}
    schemas: dict[FoldedName, tuple[NewTableAndSchema, NewSchemaRef]] = {}
    for one in staged:
        if not isinstance(one.target, NewTable):
            yield one.base, append_to_existing(one.target, one.result)
            continue
        name = one.target.name.folded
        if name in made_since:
            yield made_since[name].snapshot.id, append_to_existing(made_since[name], one.result)
        elif name in creators:
            yield one.base, _append_to_new(*creators[name], one)
        else:
            ref, target, schema = NewTableRef(len(creators)), one.target, None
            if isinstance(target, NewTableAndSchema):
                known = schemas.setdefault(target.name.schema.folded, (target, NewSchemaRef(ref.index)))
                if known[0] is not target:
                    target, schema = target.within(known[0]), known[1]
            creators[name] = replace(one, target=target), ref
            yield one.base, create_and_append(target, one.result, ref, schema)


def _refuse_twice(staged: Collection[StagedWrite]) -> None:
    seen: set[str] = set()
    for one in staged:
        if one.job_id in seen:
            raise InvalidInputError(f"The staged write in {one.directory} is given twice; give it once.")
        seen.add(one.job_id)


def _append_to_new(creator: StagedWrite, ref: NewTableRef, one: StagedWrite) -> tuple[Change, ...]:
    """Return the changes that put rows into a table which another write of the same commit creates."""
    made, result = creator.result, one.result
    if not same_columns(made.schema, result.schema) or made.partition_fields != result.partition_fields:
        raise InvalidInputError(
            f"Two staged writes create {one.target.name} with different columns or partition keys: those in "
            f"{creator.directory} and {one.directory}. Stage one of them again."
        )
    if not result.data_files:
        return ()
    files = placed_below(creator.target.root, result)
    return (AppendFiles(ref, creator.target.name, made.schema, files, root=creator.target.root),)


def with_staged(
    table: TableSnapshot | None, name: QualifiedName, staged: Sequence[StagedWrite]
) -> tuple[TableSnapshot | None, tuple[LiveDataFile, ...]]:
    """Return a table and the files it would have besides, were the writes to it among ``staged`` committed.

    ``table`` None: there is none of that name; then the table is the one that the writes would create, or
    None where none of them does.
    """
    concerned = [one for one in staged if _concerns(one, table, name)]
    made_since = {} if table is None else {name.folded: table}
    for _ in plan_change_sets(concerned, made_since):
        pass  # raises what the commit would
    found = table or next((_as_created(one) for one in concerned if one.creates), None)
    if found is None:
        return None, ()
    for one in concerned:
        if isinstance(one.target, TableSnapshot) and one.target.table_id != found.table_id:
            raise TransactionConflictError(
                "add staged rows to it", "has another table of that name", str(name), found.snapshot.id
            )
        append_to_existing(found, one.result)
    return found, tuple(_live(file, found) for one in concerned for file in one.result.data_files)


def _concerns(one: StagedWrite, table: TableSnapshot | None, name: QualifiedName) -> bool:
    is_same = isinstance(one.target, TableSnapshot) and table and one.target.table_id == table.table_id
    return bool(is_same) or one.target.name.folded == name.folded


def _as_created(one: StagedWrite) -> TableSnapshot:
    target, result = one.target, one.result
    assert isinstance(target, NewTable)
    return TableSnapshot(
        snapshot=target.snapshot,
        table_id=_NO_TABLE_YET,
        table_uuid=target.uuid,
        schema_id=_NO_SCHEMA_YET if target.schema_id is None else target.schema_id,
        name=target.name,
        schema=result.schema,
        root=target.root,
        partition_spec=PartitionSpec(result.partition_fields) if result.partition_fields else None,
        files=(),
    )


def _live(file: DataFile, table: TableSnapshot) -> LiveDataFile:
    """Return a file as a reader takes it; it has no id and no row ids yet."""
    return LiveDataFile(
        id=_NO_FILE_YET,
        path=file.path,
        record_count=file.record_count,
        file_size_bytes=file.file_size_bytes,
        footer_size=file.footer_size,
        row_id_start=None,
        begin_snapshot=table.snapshot.id,
        column_stats=file.column_stats,
        partition_values=file.partition_values,
        encryption_key=file.encryption_key,
    )


@dataclass(frozen=True, slots=True)
class StagedBatch:
    """What a job wrote of one batch, in a directory of the table named by ``job_id``.

    ``query_id`` is the query's in its checkpoint. Spark numbers the batches from 0, and runs one again, with
    the same rows, until it has noted that it is done.
    """

    query_id: str
    batch_id: int
    job_id: str
    result: WriteResult
