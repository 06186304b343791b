"""Check that the catalog's rows of data files and delete files have owners and possible values."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

from sqlalchemy import BigInteger, and_, case, exists, func, literal, or_, select, union_all
from sqlalchemy import cast as sql_cast

from airflow_provider_ducklake.lake.catalog.database.column_types import maybe
from airflow_provider_ducklake.lake.catalog.verify.lifetimes import overlapping
from airflow_provider_ducklake.lake.planning.upkeep.findings import Finding, FindingCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Select

    from airflow_provider_ducklake.lake.catalog.verify.look import Look

_KINDS = (("data_file", "data_file_id"), ("delete_file", "delete_file_id"))
_OF_DATA_FILES = ("file_column_stats", "file_variant_stats", "file_partition_value")
TRANSACTION_LOCAL = 10**18  # row ids from here on are numbers that the reference leaked from a transaction


def check_file_rows(look: Look) -> Iterator[Finding]:
    """Yield what is wrong with the rows of files, without looking at a file."""
    yield from chain(
        _tables(look),
        _data_files(look),
        _two_delete_files(look),
        _mappings(look),
        _partitions(look),
        _partition_values(look),
        _counts(look),
        _delete_counts(look),
        _orphaned(look) if look.is_whole else (),
        _row_counter(look),
    )


def _named(row: Any, look: Look) -> str:  # noqa: ANN401 - a row with kind, id and table_id
    return f"{row.kind.replace('_', ' ').capitalize()} {row.id} of {look.table(row.table_id)}"


def _tables(look: Look) -> Iterator[Finding]:
    table = look.tables["table"]
    owner = (
        select(
            table.c.table_id,
            func.count(case((table.c.end_snapshot.is_(None), 1))).label("live"),
            func.max(table.c.end_snapshot).label("last"),
        )
        .group_by(table.c.table_id)
        .subquery()
    )
    parts = []
    for kind, id_ in _KINDS:
        file = look.tables[kind]
        known = owner.c.table_id.is_not(None)
        parts.append(
            select(
                literal(kind).label("kind"),
                file.c[id_].label("id"),
                file.c.table_id,
                maybe(owner.c.table_id).label("known"),
                owner.c.last,
            )
            .select_from(file.outerjoin(owner, owner.c.table_id == file.c.table_id))
            .where(
                look.chosen(file.c.table_id),
                or_(~known, and_(file.c.end_snapshot.is_(None), owner.c.live == 0)),
            )
        )
    for row in look.few(select(union_all(*parts).subquery())):
        objects = {"kind": row.kind, "id": row.id, "table_id": row.table_id}
        if row.known is not None:
            sentence = f"{_named(row, look)} is live, but the table ended with snapshot {row.last}."
            yield Finding(FindingCode.TABLE_ENDED, sentence, {**objects, "end_snapshot": row.last})
        else:
            sentence = f"{_named(row, look)}: there is no such table."
            yield Finding(FindingCode.TABLE_UNKNOWN, sentence, objects)


def _data_files(look: Look) -> Iterator[Finding]:
    file, delete = look.tables["data_file"], look.tables["delete_file"]
    has_one = exists().where(
        file.c.data_file_id == delete.c.data_file_id, file.c.table_id == delete.c.table_id
    )
    query = select(delete.c.delete_file_id, delete.c.data_file_id, delete.c.table_id).where(
        look.chosen(delete.c.table_id), ~has_one
    )
    for row in look.few(query):
        yield Finding(
            FindingCode.DATA_FILE_UNKNOWN,
            f"Delete file {row.delete_file_id} of {look.table(row.table_id)} belongs to data file "
            f"{row.data_file_id}, which the table does not have.",
            {
                "table_id": row.table_id,
                "delete_file_id": row.delete_file_id,
                "data_file_id": row.data_file_id,
            },
        )


def _two_delete_files(look: Look) -> Iterator[Finding]:
    file, delete = look.tables["data_file"], look.tables["delete_file"]
    twice = overlapping(
        delete, ("data_file_id", "table_id"), "delete_file_id", look.chosen(delete.c.table_id)
    ).subquery()
    query = (
        select(twice)
        .join(file, file.c.data_file_id == twice.c.data_file_id)
        .where(or_(file.c.end_snapshot.is_(None), file.c.end_snapshot > twice.c.begin_snapshot))
    )
    for row in look.few(query):
        yield Finding(
            FindingCode.TWO_DELETE_FILES,
            f"Data file {row.data_file_id} of {look.table(row.table_id)} has two delete files at snapshot "
            f"{row.begin_snapshot}, one of them {row.id}: DuckDB shows its rows twice.",
            {"table_id": row.table_id, "data_file_id": row.data_file_id, "delete_file_id": row.id},
        )


def _mappings(look: Look) -> Iterator[Finding]:
    file, mapping = look.tables["data_file"], look.tables["column_mapping"]
    known = exists().where(mapping.c.mapping_id == file.c.mapping_id, mapping.c.table_id == file.c.table_id)
    query = select(file.c.data_file_id, file.c.table_id, file.c.mapping_id).where(
        file.c.mapping_id.is_not(None), look.chosen(file.c.table_id), ~known
    )
    for row in look.few(query):
        yield Finding(
            FindingCode.MAPPING_UNKNOWN,
            f"Data file {row.data_file_id} of {look.table(row.table_id)} has its columns from name mapping "
            f"{row.mapping_id}, which the table does not have.",
            {"table_id": row.table_id, "data_file_id": row.data_file_id, "mapping_id": row.mapping_id},
        )


def _partitions(look: Look) -> Iterator[Finding]:
    file, info = look.tables["data_file"], look.tables["partition_info"]
    known = exists().where(info.c.partition_id == file.c.partition_id, info.c.table_id == file.c.table_id)
    query = select(file.c.data_file_id, file.c.table_id, file.c.partition_id).where(
        file.c.partition_id.is_not(None), look.chosen(file.c.table_id), ~known
    )
    for row in look.few(query):
        yield Finding(
            FindingCode.PARTITION_UNKNOWN,
            f"Data file {row.data_file_id} of {look.table(row.table_id)} was written with partitioning "
            f"{row.partition_id}, which the table never had.",
            {"table_id": row.table_id, "data_file_id": row.data_file_id, "partition_id": row.partition_id},
        )


def _partition_values(look: Look) -> Iterator[Finding]:
    file, key, value = (look.tables[one] for one in ("data_file", "partition_column", "file_partition_value"))
    keys = select(key.c.partition_id, func.count().label("count")).group_by(key.c.partition_id).subquery()
    values = (
        select(value.c.data_file_id, func.count().label("count")).group_by(value.c.data_file_id).subquery()
    )
    wanted, found = func.coalesce(keys.c.count, 0), func.coalesce(values.c.count, 0)
    query = (
        select(file.c.data_file_id, file.c.table_id, wanted.label("wanted"), found.label("found"))
        .outerjoin(keys, keys.c.partition_id == file.c.partition_id)
        .outerjoin(values, values.c.data_file_id == file.c.data_file_id)
        .where(look.chosen(file.c.table_id), wanted != found)
    )
    for row in look.few(query):
        yield Finding(
            FindingCode.PARTITION_VALUES_MISSING,
            f"Data file {row.data_file_id} of {look.table(row.table_id)} has {row.found} partition values "
            f"for {row.wanted} keys.",
            {"table_id": row.table_id, "data_file_id": row.data_file_id},
        )


def _counts(look: Look) -> Iterator[Finding]:
    file = look.tables["data_file"]
    impossible = or_(
        file.c.record_count < 0,
        file.c.record_count >= TRANSACTION_LOCAL,
        file.c.file_size_bytes < 0,
        file.c.row_id_start < 0,
        file.c.row_id_start >= 2 * TRANSACTION_LOCAL,
    )
    partial = or_(file.c.partial_max < file.c.begin_snapshot, file.c.partial_max > look.newest_id)
    query = select(
        file.c.data_file_id,
        file.c.table_id,
        file.c.record_count,
        file.c.row_id_start,
        file.c.partial_max,
        impossible.label("bad"),
    ).where(look.chosen(file.c.table_id), or_(impossible, partial))
    for row in look.few(query):
        objects = {"table_id": row.table_id, "data_file_id": row.data_file_id}
        named = f"Data file {row.data_file_id} of {look.table(row.table_id)}"
        if row.bad:
            first = "" if row.row_id_start is None else f" from id {row.row_id_start}"
            sentence = f"{named} has {row.record_count} rows{first}, or a size, that are not possible."
            yield Finding(FindingCode.COUNT_IMPOSSIBLE, sentence, objects)
        else:
            sentence = f"{named} has rows up to snapshot {row.partial_max}: before its own, or not there yet."
            yield Finding(FindingCode.PARTIAL_MAX_WRONG, sentence, objects)


def _delete_counts(look: Look) -> Iterator[Finding]:
    file, delete = look.tables["data_file"], look.tables["delete_file"]
    query = (
        select(delete.c.delete_file_id, delete.c.table_id, delete.c.delete_count, file.c.record_count)
        .join(file, file.c.data_file_id == delete.c.data_file_id)
        .where(
            look.chosen(delete.c.table_id),
            or_(delete.c.delete_count < 1, delete.c.delete_count > file.c.record_count),
        )
    )
    for row in look.few(query):
        yield Finding(
            FindingCode.COUNT_IMPOSSIBLE,
            f"Delete file {row.delete_file_id} of {look.table(row.table_id)} deletes {row.delete_count} of "
            f"{row.record_count} rows.",
            {"table_id": row.table_id, "delete_file_id": row.delete_file_id},
        )


def _orphaned(look: Look) -> Iterator[Finding]:
    file = look.tables["data_file"]
    parts: list[Select[Any]] = []
    for name in _OF_DATA_FILES:
        table = look.tables[name]
        known = exists().where(file.c.data_file_id == table.c.data_file_id)
        parts.append(
            select(literal(name).label("kind"), table.c.data_file_id.label("id")).where(~known).distinct()
        )
    for row in look.few(select(union_all(*parts).subquery())):
        yield Finding(
            FindingCode.ROWS_OF_NOTHING,
            f"ducklake_{row.kind} has rows of data file {row.id}, which does not exist.",
            {"rows_of": row.kind, "data_file_id": row.id},
        )


def _row_counter(look: Look) -> Iterator[Finding]:
    """Yield tables that would give out a row id again; files with stored ids only seem to."""
    file, stats = look.tables["data_file"], look.tables["table_stats"]
    end = func.max(file.c.row_id_start + sql_cast(file.c.record_count, BigInteger))
    query = (
        select(stats.c.table_id, stats.c.next_row_id, end.label("end"))
        .join(file, file.c.table_id == stats.c.table_id)
        .where(
            look.chosen(stats.c.table_id),
            file.c.end_snapshot.is_(None),
            file.c.partial_max.is_(None),
            file.c.row_id_start < TRANSACTION_LOCAL,
            file.c.record_count < TRANSACTION_LOCAL,
        )
        .group_by(stats.c.table_id, stats.c.next_row_id)
        .having(end > stats.c.next_row_id)
    )
    for row in look.few(query):
        yield Finding(
            FindingCode.ROW_COUNTER_BEHIND,
            f"{look.table(row.table_id)} has rows up to id {row.end - 1}, but would give the next row "
            f"{row.next_row_id}.",
            {"table_id": row.table_id, "least": row.end},
        )
