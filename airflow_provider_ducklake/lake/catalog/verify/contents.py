"""Check the files of a lake, one page of the catalog's rows at a time, so that no lake is too large."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any, TypeAlias

from sqlalchemy import Connection, Row, select, true

from ...errors import UnsupportedFeatureError
from ...format.log_lines import logger
from ...format.partitioning import PartitionField, PartitionSpec, Transform
from ...format.snapshots import ColumnId, PartitionId
from ...format.versions import Feature
from ...planning.upkeep.findings import Finding, FindingCode
from ..snapshot.read_files import file_stats_query, live_data_file, live_delete_file, partition_values_query
from .files import table_roots

if TYPE_CHECKING:
    from ...format.types.ducklake_types import DuckLakeType
    from ...storage.files.filesystem import Location
    from ...storage.moving.verify_files import DeletesToVerify, FileToVerify
    from ..database.tables import CatalogTables
    from .scope import Columns, VerificationScope

log = logger(__name__)

_PAGE = 1000

Reading: TypeAlias = Callable[[], AbstractContextManager[Connection]]
Locate: TypeAlias = Callable[[str], "Location"]


@dataclass(frozen=True, slots=True)
class Contents:
    """What the catalog says of all files together; ``roots`` are the directories of tables."""

    tables: CatalogTables
    newest: int
    only: frozenset[int] | None
    names: Mapping[int, str]
    roots: Mapping[int, str]
    specs: Mapping[int, PartitionSpec]
    columns: Columns

    @classmethod
    def of(cls, scope: VerificationScope) -> Contents:
        """Collect this from one state of the catalog."""
        roots = {row.table_id: row.root for row in scope.connection.execute(table_roots(scope))}
        return cls(
            scope.tables, scope.newest_id, scope.only, scope.names, roots, _specs(scope), scope.columns
        )


def _specs(scope: VerificationScope) -> dict[int, PartitionSpec]:
    """Return every partitioning by its id; those with transforms we do not know are left out."""
    key = scope.tables["partition_column"]
    rows = scope.connection.execute(
        select(key)
        .where(scope.chosen(key.c.table_id))
        .order_by(key.c.partition_id, key.c.partition_key_index)
    )
    found: dict[int, PartitionSpec] = {}
    for partition_id, keys in groupby(rows, key=lambda row: row.partition_id):
        try:
            fields = tuple(
                PartitionField(ColumnId(one.column_id), Transform.parse(one.transform)) for one in keys
            )
        except UnsupportedFeatureError:
            continue
        found[partition_id] = PartitionSpec(fields, PartitionId(partition_id))
    return found


def check_contents(contents: Contents, reading: Reading, locate: Locate, sample: float) -> Iterator[Finding]:
    """Yield what is wrong with files; ``sample`` is the fraction of them that is looked at, drawn again."""
    from ...storage.files.parallel import in_threads
    from ...storage.moving.verify_files import verify_data_file, verify_delete_file

    def at(one: FileToVerify | DeletesToVerify) -> Location:
        return locate(one.file.path).with_key(one.file.encryption_key)

    newest = contents.newest
    for page in _pages(contents, reading, sample, "data_file", _files_to_verify):
        found = in_threads(lambda one: verify_data_file(at(one), one), page)
        yield from _still_there(contents, reading, "data_file", found)
    for page in _pages(contents, reading, sample, "delete_file", _deletes_to_verify):
        found = in_threads(lambda one: verify_delete_file(at(one), one, newest), page)
        yield from _still_there(contents, reading, "delete_file", found)


def _pages(
    contents: Contents,
    reading: Reading,
    sample: float,
    kind: str,
    prepare: Callable[[Connection, Contents, Sequence[Row[Any]]], list[Any]],
) -> Iterator[list[Any]]:
    """Yield the files of one page of rows after the other, with the catalog closed."""
    file, last, seen = contents.tables[kind], -1, 0
    id_ = file.c[f"{kind}_id"]
    chosen = true() if contents.only is None else file.c.table_id.in_(contents.only)
    query = select(file).where(chosen).order_by(id_).limit(_PAGE)
    while True:
        with reading() as connection:
            rows = connection.execute(query.where(id_ > last)).all()
            drawn = [row for row in rows if sample >= 1 or random.random() < sample]
            page = prepare(connection, contents, drawn)
        yield page
        seen += len(drawn)
        if len(rows) < _PAGE:
            log.info("Checked %d files of kind %s", seen, kind)
            return
        last = rows[-1][0]
        log.info("Checked %d files of kind %s so far", seen, kind)


def _still_there(
    contents: Contents, reading: Reading, kind: str, findings: Iterable[Iterable[Finding]]
) -> Iterator[Finding]:
    """Leave out files that are gone because nothing refers to them any more."""
    found, id_ = list(chain.from_iterable(findings)), contents.tables[kind].c[f"{kind}_id"]
    missing = [one.objects[id_.name] for one in found if one.code is FindingCode.FILE_MISSING]
    known: set[int] = set()
    if missing:
        with reading() as connection:
            known = set(connection.execute(select(id_).where(id_.in_(missing))).scalars())
    for one in found:
        if one.code is not FindingCode.FILE_MISSING or one.objects[id_.name] in known:
            yield one


def _files_to_verify(
    connection: Connection, contents: Contents, rows: Sequence[Row[Any]]
) -> list[FileToVerify]:
    found: list[FileToVerify] = []
    by_table = sorted(rows, key=lambda row: row.table_id)
    for table_id, of_table in groupby(by_table, key=lambda row: row.table_id):
        found += _findings_of_table(connection, contents, table_id, list(of_table))
    return found


def _findings_of_table(
    connection: Connection, contents: Contents, table_id: int, rows: Sequence[Row[Any]]
) -> Iterator[FileToVerify]:
    from ...storage.moving.verify_files import FileToVerify

    ids = [row.data_file_id for row in rows]
    stats = file_stats_query(contents.tables, table_id, ids, None).ask(connection)
    values = partition_values_query(contents.tables, table_id, ids).ask(connection)
    types: Mapping[ColumnId, tuple[DuckLakeType, ...]] = contents.columns.types(table_id)
    for row in rows:
        file = live_data_file(
            row,
            contents.roots.get(table_id, ""),
            {},
            column_stats=stats.get(row.data_file_id, {}),
            partition_values=tuple(values.get(row.data_file_id, ())),
        )
        yield FileToVerify(
            file,
            table_id,
            contents.names.get(table_id, f"table {table_id}"),
            contents.columns.at(table_id, row.begin_snapshot),
            types,
            contents.specs.get(row.partition_id),
            is_live=row.end_snapshot is None,
        )


def _deletes_to_verify(
    connection: Connection, contents: Contents, rows: Sequence[Row[Any]]
) -> list[DeletesToVerify]:
    from ...storage.moving.verify_files import DeletesToVerify

    file = contents.tables["data_file"]
    ids = [row.data_file_id for row in rows]
    query = select(file.c.data_file_id, file.c.record_count).where(file.c.data_file_id.in_(ids))
    counts = {row.data_file_id: row.record_count for row in connection.execute(query)} if ids else {}
    return [
        DeletesToVerify(
            live_delete_file(row, contents.roots.get(row.table_id, "")),
            row.table_id,
            contents.names.get(row.table_id, f"table {row.table_id}"),
            counts.get(row.data_file_id),
            Feature.DELETION_VECTOR_CONTAINERS in contents.tables.writer.features,
        )
        for row in rows
    ]
