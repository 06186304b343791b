"""A lake of DuckLake 1.1 as DuckDB 1.5.5 can attach it: the judge of what a 1.1 writer wrote.

The catalog is a copy in the words of 1.0; the files are the lake's own, so the copy is for reading. What the
copy changes: a nested schema is a top-level one with its path for a name (`sales/europe`); a column with
a name of 1.0's inlined tables ends in an underscore (`row_id_`); the type `null` is `int32`, `timestamptz_ns`
is `timestamptz`, and VARIANT is `blob` in a table without files; tables with an `epoch_*` key are not
partitioned; deletion vectors of several snapshots in one file are a Parquet delete file.
"""

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import sqlalchemy as sa

from tests.reference import postgres
from tests.reference.catalogs import CatalogDatabase
from tests.reference.containers import rewrite_containers
from tests.reference.words_of_1_0 import APPENDED

_RENAMED = ("row_id", "begin_snapshot", "end_snapshot")
_TYPES = {"null": "int32", "timestamptz_ns": "timestamptz"}


class CannotJudgeError(Exception):
    """The lake has something that 1.0 has no words for."""


def as_1_0(lake: CatalogDatabase, empty: CatalogDatabase) -> CatalogDatabase:
    """Fill an empty catalog of the same kind, SQLite or PostgreSQL, with a 1.1 lake in the words of 1.0.

    Raises:
        CannotJudgeError: a table has variants inlined and in files, a macro has an expression for a default,
            or two schemas would have one name.
    """
    _copy(lake, empty)
    engine = sa.create_engine(empty.sqlalchemy_url, poolclass=sa.NullPool)
    with engine.begin() as connection:
        _refuse(connection)
        rewrite_containers(connection, lake.data_path, Path(empty.data_path))
        _free_names(connection)
        _hide_inlined_variants(connection)
        _flatten_schemas(connection)
        _flatten_changes(connection)
        _rename_inlined_columns(connection)
        _forget_epoch_keys(connection)
        for new, old in _TYPES.items():
            _run(
                connection,
                "UPDATE ducklake_column SET column_type = :old WHERE column_type = :new",
                old=old,
                new=new,
            )
        for table, columns in APPENDED.items():
            for column in columns:
                _run(connection, f"ALTER TABLE {table} DROP COLUMN {column}")
        _run(connection, "DROP TABLE ducklake_view_column_tag")
        _run(connection, "UPDATE ducklake_metadata SET value = '1.0' WHERE key = 'version'")
    return CatalogDatabase(empty.kind, empty.location, lake.data_path)


def _copy(lake: CatalogDatabase, empty: CatalogDatabase) -> None:
    if lake.kind == "postgres":
        postgres.copy_database(lake.location, empty.location)
        return
    with (
        closing(sqlite3.connect(lake.location)) as source,
        closing(sqlite3.connect(empty.location)) as target,
    ):
        source.backup(target)


def _run(connection: sa.Connection, statement: str, **values: object) -> list[sa.Row]:
    found = connection.execute(sa.text(statement), values)
    return list(found) if found.returns_rows else []


# what cannot be said in 1.0


def _refuse(connection: sa.Connection) -> None:
    ((version,),) = _run(connection, "SELECT value FROM ducklake_metadata WHERE key = 'version'")
    if version != "1.1":
        raise CannotJudgeError(f"the lake is of version {version}")
    expressions = (
        "SELECT parameter_name FROM ducklake_macro_parameters WHERE default_value_type = 'expression'"
    )
    for (parameter,) in _run(connection, expressions):
        raise CannotJudgeError(f"the default of the macro parameter {parameter} is an expression")


def _hide_inlined_variants(connection: sa.Connection) -> None:
    """1.0 has no inlined table where a column is a VARIANT."""
    for name, table_id in _run(connection, _VARIANTS):
        files = "SELECT 1 FROM ducklake_data_file WHERE table_id = :table_id"
        if not _run(connection, files, table_id=table_id):
            _run(connection, _AS_BLOB, table_id=table_id)
        elif _run(connection, f"SELECT 1 FROM {_quoted(name)} LIMIT 1"):
            raise CannotJudgeError(f"{name} has variants, and so have files")
        else:
            _run(connection, "DELETE FROM ducklake_inlined_data_tables WHERE table_name = :name", name=name)


_AS_BLOB = """
    UPDATE ducklake_column SET column_type = 'blob' WHERE table_id = :table_id AND column_type = 'variant'
"""
_VARIANTS = """
    SELECT table_name, table_id FROM ducklake_inlined_data_tables
    WHERE table_id IN (SELECT table_id FROM ducklake_column WHERE column_type = 'variant')
"""


# how the rest is said


def _flatten_schemas(connection: sa.Connection) -> None:
    rows = _run(connection, "SELECT schema_id, schema_name, parent_schema_id FROM ducklake_schema")
    names = {schema_id: (name, parent) for schema_id, name, parent in rows}
    taken = {name.lower() for name, parent in names.values() if parent is None}
    for schema_id, (_, parent) in names.items():
        if parent is None:
            continue
        flat = "/".join(_path(names, schema_id))
        if flat.lower() in taken:
            raise CannotJudgeError(f"a nested schema would have the name of {flat}")
        _run(
            connection,
            "UPDATE ducklake_schema SET schema_name = :flat WHERE schema_id = :schema_id",
            flat=flat,
            schema_id=schema_id,
        )


def _path(names: dict[int, tuple[str, int | None]], schema_id: int | None) -> list[str]:
    if schema_id is None:
        return []
    name, parent = names[schema_id]
    return [*_path(names, parent), name]


_CREATED = re.compile(r'(created_\w+:)((?:"(?:[^"]|"")*"\.?)+)')
_NAME = re.compile(r'"(?:[^"]|"")*"')


def _flatten_changes(connection: sa.Connection) -> None:
    changes = "SELECT snapshot_id, changes_made FROM ducklake_snapshot_changes WHERE changes_made IS NOT NULL"
    for snapshot_id, made in _run(connection, changes):
        flat = _CREATED.sub(_flat_change, made)
        if flat != made:
            _run(
                connection,
                "UPDATE ducklake_snapshot_changes SET changes_made = :flat WHERE snapshot_id = :snapshot_id",
                flat=flat,
                snapshot_id=snapshot_id,
            )


def _flat_change(change: re.Match[str]) -> str:
    word, names = change[1], [name[1:-1] for name in _NAME.findall(change[2])]
    own = [] if word == "created_schema:" else [names.pop()]
    return word + ".".join(f'"{name}"' for name in ["/".join(names), *own])


def _free_names(connection: sa.Connection) -> None:
    for column in _RENAMED:
        free = """
            UPDATE ducklake_column SET column_name = :free
            WHERE lower(column_name) = :column AND parent_column IS NULL
        """
        _run(connection, free, free=f"{column}_", column=column)
        for (name,) in _run(connection, "SELECT table_name FROM ducklake_inlined_data_tables"):
            for found in sa.inspect(connection).get_columns(name):
                if found["name"].lower() == column:
                    _run(
                        connection,
                        f"ALTER TABLE {_quoted(name)} RENAME COLUMN {_quoted(found['name'])} TO {column}_",
                    )


def _rename_inlined_columns(connection: sa.Connection) -> None:
    for (name,) in _run(connection, "SELECT table_name FROM ducklake_inlined_data_tables"):
        for column in _RENAMED:
            _run(connection, f"ALTER TABLE {_quoted(name)} RENAME COLUMN _ducklake_{column} TO {column}")


def _forget_epoch_keys(connection: sa.Connection) -> None:
    """Their values are not those of the transforms that 1.0 has, by which its reader leaves files out."""
    epochs = "SELECT partition_id FROM ducklake_partition_column WHERE transform LIKE 'epoch%'"
    partitions = [partition_id for (partition_id,) in _run(connection, epochs)]
    for partition_id in partitions:
        files = "SELECT data_file_id FROM ducklake_data_file WHERE partition_id = :partition_id"
        values = f"DELETE FROM ducklake_file_partition_value WHERE data_file_id IN ({files})"
        _run(connection, values, partition_id=partition_id)
        for table in ("ducklake_partition_column", "ducklake_partition_info"):
            _run(
                connection,
                f"DELETE FROM {table} WHERE partition_id = :partition_id",
                partition_id=partition_id,
            )
        _run(
            connection,
            "UPDATE ducklake_data_file SET partition_id = NULL WHERE partition_id = :partition_id",
            partition_id=partition_id,
        )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
