"""Catalog databases as plain rows, read without any code of ours, and their comparison.

Two writers never agree on uuids, times and file sizes: `normalise` hides exactly those.
`IGNORED` says why.
"""

import re
import sqlite3
import struct
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing, contextmanager
from itertools import zip_longest
from typing import Any

import duckdb
import psycopg

from tests.reference import mariadb
from tests.reference.catalogs import CatalogDatabase
from tests.reference.words_of_1_0 import in_words_of_1_0

Row = dict[str, Any]
Dump = dict[str, list[Row]]
Layout = list[tuple[str, str, bool]]  # (column, declared type, part of the primary key)
Schema = dict[str, Layout]
Query = Callable[[str], list[tuple[Any, ...]]]

# "table.column": why two correct writers differ there. NULL and 0 are still compared.
IGNORED = {
    "ducklake_metadata.value of created_by": "names the writer",
    "ducklake_metadata.value of data_path": "each lake of a comparison has its own directory",
    "ducklake_snapshot.snapshot_time": "the clock",
    "ducklake_files_scheduled_for_deletion.schedule_start": "the clock",
    "ducklake_data_file.file_size_bytes": "Parquet writers encode and compress differently",
    "ducklake_data_file.footer_size": "Parquet writers store different footers",
    "ducklake_data_file.encryption_key": "random for each file",
    "ducklake_delete_file.file_size_bytes": "Parquet writers encode and compress differently",
    "ducklake_delete_file.footer_size": "Parquet writers store different footers",
    "ducklake_delete_file.encryption_key": "random for each file",
    "ducklake_file_column_stats.column_size_bytes": "Parquet writers encode and compress differently",
    "ducklake_file_variant_stats.column_size_bytes": "Parquet writers encode and compress differently",
    "ducklake_table_stats.file_size_bytes": "sum of sizes that differ",
}

# What identifies a row: the order of comparison, and how a difference names the row.
KEYS = {
    "ducklake_metadata": ("key", "scope", "scope_id"),
    "ducklake_snapshot": ("snapshot_id",),
    "ducklake_snapshot_changes": ("snapshot_id",),
    "ducklake_schema": ("schema_id", "begin_snapshot"),
    "ducklake_table": ("table_id", "begin_snapshot"),
    "ducklake_view": ("view_id", "begin_snapshot"),
    "ducklake_tag": ("object_id", "key", "begin_snapshot"),
    "ducklake_column_tag": ("table_id", "column_id", "key", "begin_snapshot"),
    "ducklake_data_file": ("data_file_id",),
    "ducklake_file_column_stats": ("data_file_id", "column_id"),
    "ducklake_file_variant_stats": ("data_file_id", "column_id", "variant_path"),
    "ducklake_delete_file": ("delete_file_id",),
    "ducklake_column": ("table_id", "column_id", "begin_snapshot"),
    "ducklake_table_stats": ("table_id",),
    "ducklake_table_column_stats": ("table_id", "column_id"),
    "ducklake_partition_info": ("partition_id", "begin_snapshot"),
    "ducklake_partition_column": ("partition_id", "partition_key_index"),
    "ducklake_file_partition_value": ("data_file_id", "partition_key_index"),
    "ducklake_files_scheduled_for_deletion": ("data_file_id",),
    "ducklake_inlined_data_tables": ("table_id", "schema_version"),
    "ducklake_column_mapping": ("mapping_id",),
    "ducklake_name_mapping": ("mapping_id", "column_id"),
    "ducklake_schema_versions": ("begin_snapshot", "schema_version", "table_id"),
    "ducklake_macro": ("macro_id", "begin_snapshot"),
    "ducklake_macro_impl": ("macro_id", "impl_id"),
    "ducklake_macro_parameters": ("macro_id", "impl_id", "column_id"),
    "ducklake_sort_info": ("sort_id", "begin_snapshot"),
    "ducklake_sort_expression": ("sort_id", "sort_key_index"),
}
_DYNAMIC_KEYS = {
    "ducklake_inlined_data_": ("row_id", "begin_snapshot"),
    "ducklake_inlined_delete_": ("file_id", "row_id"),
}
_BOOLEANS = {"path_is_relative", "nulls_allowed", "contains_nan", "contains_null", "is_partition"}
_HOLDS_UUID = {"schema_uuid", "table_uuid", "view_uuid", "path"}
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def dump_catalog(catalog: CatalogDatabase) -> Dump:
    """Read every table, rows in the order they lie in, columns in table order.

    Tests that run at both versions get a 1.1 lake in the words of 1.0.
    """
    with _reader(catalog) as query:
        layouts = _schema(catalog, query)
        found = {table: _rows(catalog, query, table, layout) for table, layout in layouts.items()}
    return in_words_of_1_0(found) if catalog.spec_version == "1.1" and found else found


def dump_schema(catalog: CatalogDatabase) -> Schema:
    """Read the layout of every table, tables by name, columns in order."""
    with _reader(catalog) as query:
        return _schema(catalog, query)


@contextmanager
def _reader(catalog: CatalogDatabase) -> Iterator[Query]:
    match catalog.kind:
        case "sqlite":
            connection = sqlite3.connect(f"file:{catalog.location}?mode=ro", uri=True)
        case "postgres":
            connection = psycopg.connect(catalog.location)
        case "duckdb":
            connection = duckdb.connect(catalog.location, read_only=True)
        case "mariadb":
            with mariadb.admin(int(catalog.server["port"]), catalog.database) as cursor:
                cursor.execute("SET sql_mode = 'ANSI_QUOTES'")
                yield lambda text: (cursor.execute(text), list(cursor.fetchall()))[1]
            return
    with closing(connection):
        yield lambda text: connection.execute(text).fetchall()


def _rows(catalog: CatalogDatabase, query: Query, table: str, layout: Layout) -> list[Row]:
    names = [name for name, _, _ in layout]
    listed = ", ".join(_quoted(name) for name in names)
    rows = query(f"SELECT {listed} FROM {_quoted(table)} ORDER BY {_POSITION[catalog.kind]}")
    return [dict(zip(names, row, strict=True)) for row in rows]


_POSITION = {"sqlite": "rowid", "postgres": "ctid", "duckdb": "rowid", "mariadb": "NULL"}


def _quoted(identifier: str) -> str:
    return '"' + identifier.replace('"', '""') + '"'


def _schema(catalog: CatalogDatabase, query: Query) -> Schema:
    schema: Schema = defaultdict(list)
    for table, column, declared_type, is_key in query(_LAYOUT_QUERIES[catalog.kind]):
        schema[table].append((column, declared_type, bool(is_key)))
    return dict(schema)


_LAYOUT_QUERIES = {
    "sqlite": """
        SELECT t.name, c.name, c.type, c.pk FROM sqlite_master t, pragma_table_info(t.name) c
        WHERE t.type = 'table' ORDER BY t.name, c.cid""",
    "postgres": """
        SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod),
            coalesce(a.attnum = ANY (i.indkey), false)
        FROM pg_class c
        JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
        LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary
        WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace
        ORDER BY c.relname COLLATE "C", a.attnum""",
    "mariadb": """
        SELECT table_name, column_name, concat_ws(' ', column_type, collation_name), column_key = 'PRI'
        FROM information_schema.columns WHERE table_schema = database()
        ORDER BY table_name, ordinal_position""",
    "duckdb": """
        SELECT table_name, column_name, data_type, EXISTS (
            FROM duckdb_constraints() k WHERE k.table_oid = c.table_oid
            AND k.constraint_type = 'PRIMARY KEY' AND list_contains(k.constraint_column_names, c.column_name))
        FROM duckdb_columns() c WHERE NOT internal ORDER BY table_name, column_index""",
}


def normalise(dump: Dump) -> Dump:
    """Sort the rows by what identifies them and hide what two writers cannot have in common.

    The reference does not always choose the shortest text of a float32, so its bounds are compared by value.
    A uuid becomes the place of its first appearance, so that the same uuid is the same everywhere and
    a missing row does not rename the others.
    """
    places: dict[str, str] = {}
    data_path = _data_path(dump)
    normal = {
        table: [
            _normal_row(table, row, data_path, places)
            for row in _sorted(table, dump[table])
            if _was_ever_visible(row)
        ]
        for table in _in_order(dump)
    }
    _write_float32_bounds_alike(normal)
    return normal


def _was_ever_visible(row: Row) -> bool:
    """Tell whether any snapshot shows the row: the reference writes some that begin and end in one."""
    return row.get("end_snapshot") is None or row.get("begin_snapshot") != row["end_snapshot"]


def _write_float32_bounds_alike(dump: Dump) -> None:
    types = defaultdict(set)
    for column in dump.get("ducklake_column", []):
        types[column["table_id"], column["column_id"]].add(column["column_type"])
    for table in ("ducklake_file_column_stats", "ducklake_table_column_stats"):
        for row in dump.get(table, []):
            if types[row["table_id"], row["column_id"]] == {"float32"}:
                row.update({bound: _float32_text(row[bound]) for bound in ("min_value", "max_value")})


def _float32_text(text: str | None) -> str | None:
    return text and str(struct.unpack("f", struct.pack("f", float(text)))[0])


def _in_order(tables: Iterable[str]) -> list[str]:
    """Order the tables as the format lists them, so that a uuid is named after its owner."""
    known = list(KEYS)
    return sorted(tables, key=lambda table: (known.index(table) if table in KEYS else len(known), table))


def _data_path(dump: Dump) -> str | None:
    found = [row["value"] for row in dump.get("ducklake_metadata", []) if row["key"] == "data_path"]
    return found[0] if found else None


def _key_of(table: str, row: Row) -> tuple[Any, ...]:
    columns = KEYS.get(table) or next(
        (key for prefix, key in _DYNAMIC_KEYS.items() if table.startswith(prefix)), tuple(row)
    )
    return tuple(row.get(column) for column in columns)


def _key_text(table: str, row: Row) -> str:
    return ", ".join(str(value) for value in _key_of(table, row))


def _sorted(table: str, rows: list[Row]) -> list[Row]:
    def comparable(value: object) -> tuple[Any, ...]:
        is_number = isinstance(value, int | float)
        return (value is not None, not is_number, value if is_number else 0, str(value))

    return sorted(rows, key=lambda row: [comparable(value) for value in _key_of(table, row)])


def _normal_row(table: str, row: Row, data_path: str | None, places: dict[str, str]) -> Row:
    if not table.startswith("ducklake_") or table.startswith(tuple(_DYNAMIC_KEYS)):
        return row
    normal = {column: _normal_value(table, column, value) for column, value in row.items()}
    if table == "ducklake_metadata" and row["key"] in ("created_by", "data_path"):
        normal["value"] = f"<{row['key']}>"
    for column, value in row.items():
        if column in _HOLDS_UUID and value is not None:
            place = f"<{column} of {table} {_key_text(table, row)}>"
            normal[column] = _without_uuids(str(value), data_path, place, places)
    return normal


def _normal_value(table: str, column: str, value: object) -> object:
    if column in _BOOLEANS and value is not None:
        return bool(value)
    if f"{table}.{column}" in IGNORED and value:
        return f"<{column}>"
    return value


def _without_uuids(text: str, data_path: str | None, place: str, places: dict[str, str]) -> str:
    if data_path and text.startswith(data_path):
        text = "<data_path>/" + text.removeprefix(data_path)
    return _UUID.sub(lambda match: places.setdefault(match[0], place), text)


def assert_catalogs_equal(ours: Dump, theirs: Dump, ignore: Collection[str] = ()) -> None:
    """Compare two dumps after normalising; tables of our own (not named `ducklake_…`) are left out.

    Args:
        ours: what the code under test left behind.
        theirs: what the reference left behind.
        ignore: tables ("ducklake_tag") or columns ("ducklake_table.path") to leave out in this comparison.
    """
    differences = list(catalog_differences(ours, theirs, ignore))
    if differences:
        raise AssertionError("\n".join(["catalogs differ (ours | theirs):", *differences]))


def catalog_differences(ours: Dump, theirs: Dump, ignore: Collection[str] = ()) -> Iterator[str]:
    """Yield one line for each table, row or value that differs."""
    ours, theirs = normalise(ours), normalise(theirs)
    for table in _in_order(ours.keys() | theirs.keys()):
        if not table.startswith("ducklake_") or table in ignore:
            continue
        if table not in ours or table not in theirs:
            yield f"{table}: {_presence(table, ours)} | {_presence(table, theirs)}"
        else:
            yield from _table_differences(table, ours[table], theirs[table], ignore)


def _presence(table: str, dump: Dump) -> str:
    return "present" if table in dump else "absent"


def _table_differences(
    table: str, ours: list[Row], theirs: list[Row], ignore: Collection[str]
) -> Iterator[str]:
    our_groups, their_groups = _by_key(table, ours), _by_key(table, theirs)
    for key in dict.fromkeys((*our_groups, *their_groups)):
        for our_row, their_row in zip_longest(our_groups.get(key, []), their_groups.get(key, [])):
            name = f"{table} {key}"
            if our_row is None or their_row is None:
                yield f"{name}: {_shown(our_row)} | {_shown(their_row)}"
            else:
                yield from _row_differences(table, name, our_row, their_row, ignore)


def _by_key(table: str, rows: list[Row]) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[_key_text(table, row)].append(row)
    return groups


def _row_differences(table: str, name: str, ours: Row, theirs: Row, ignore: Collection[str]) -> Iterator[str]:
    if list(ours) != list(theirs):
        yield f"{name}: columns {list(ours)} | {list(theirs)}"
    for column in ours.keys() & theirs.keys():
        if f"{table}.{column}" in ignore or _same(ours[column], theirs[column]):
            continue
        yield f"{name}: {column}: {ours[column]!r} | {theirs[column]!r}"


def _same(ours: object, theirs: object) -> bool:
    """Compare strictly: 1 is not '1', and NaN is itself."""
    return repr(ours) == repr(theirs)


def _shown(row: Row | None) -> str:
    return "no such row" if row is None else ", ".join(f"{column}={value!r}" for column, value in row.items())
