"""A lake as ducklakepy has it open: what tests ask of a second reader and writer of DuckLake 1.1.

Each write makes one snapshot and returns its id, or is staged between `begin` and `commit` and returns None.
A condition is SQL over the table's columns, evaluated by DuckDB's core; there a UUID is a BLOB of 16 bytes.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import duckdb
import pyarrow as pa
from ducklakepy import DuckLakeCatalog
from ducklakepy.expressions import AlwaysTrue, Expression, col
from ducklakepy.scan import TableScan
from ducklakepy.table import Table, TableIdentifier
from ducklakepy.transaction import Transaction
from ducklakepy.types import type_text
from ducklakepy.views import View

from tests.reference.next.definitions import Names, partition_key, schema_of, sort_key, to_names, type_of

ROW_ID = "rowid"


class Lake:
    def __init__(
        self,
        url: str,
        data_path: str,
        *,
        version: str | None = None,
        migrate: bool = False,
        inline_limit: int | None = None,
        encrypted: bool = False,
    ) -> None:
        self._catalog = DuckLakeCatalog(
            "lake",
            url=url,
            data_path=data_path,
            spec_version=version,
            automatic_migration=migrate,
            inline_row_threshold=inline_limit,
        )
        self._transaction: Transaction | None = None
        if not self._catalog.is_initialized():
            self._catalog.initialize(encrypted=encrypted)
        self._catalog.spec_version()  # refuses, or migrates

    def close(self) -> None:
        self._catalog.close()

    # what there is

    def version(self) -> str:
        return self._catalog.spec_version().value

    def snapshots(self) -> list[int]:
        return [snapshot.snapshot_id for snapshot in self._catalog.snapshots()]

    def head(self) -> int:
        return self._catalog.current_snapshot().snapshot_id

    def schemas(self, snapshot: int | None = None) -> list[Names]:
        """List the schemas, nested ones by all their names."""
        return [to_names(text) for text in self._catalog.list_namespaces(snapshot=self._at(snapshot))]

    def tables(self, snapshot: int | None = None) -> list[Names]:
        return self._of_every_schema(self._catalog.list_tables, snapshot)

    def views(self, snapshot: int | None = None) -> list[Names]:
        return self._of_every_schema(self._catalog.list_views, snapshot)

    def macros(self, snapshot: int | None = None) -> list[Names]:
        at = self._at(snapshot)
        return [
            (*schema, macro.name)
            for schema in self.schemas(snapshot)
            for macro in self._catalog.list_macros(schema, snapshot=at)
        ]

    def view(self, name: str | Names, snapshot: int | None = None) -> dict[str, Any]:
        view = self._catalog.load_view(_identifier(name), snapshot=self._at(snapshot))
        return {
            "sql": view.sql,
            "aliases": view.column_aliases,
            "comment": view.comment,
            "column_comments": {column: tags.get("comment") for column, tags in view.column_tags.items()},
        }

    def columns(self, table: str | Names, snapshot: int | None = None) -> dict[str, str]:
        """Return the type of each column, such as `struct(a int32)`, `int32[]`, `map(varchar, int32)`."""
        fields = self._table(table, snapshot).schema().fields
        return {field.name: type_text(field.field_type) for field in fields}

    def partition_keys(self, table: str | Names, snapshot: int | None = None) -> list[tuple[str, str]]:
        """Return the column and the transform of each key."""
        fields = self._table(table, snapshot).partition_spec().fields
        return [(field.column.name, field.transform_text) for field in fields]

    # reading

    def read(
        self, table: str | Names, snapshot: int | None = None, where: Sequence[tuple[str, str, object]] = ()
    ) -> pa.Table:
        """Return the rows at a snapshot.

        Args:
            where: pairs of a column and a value with `=`, `<`, `<=`, `>` or `>=` between; all must hold.
                By them files are left out, as their statistics and partition values say.
        """
        return self._table(table, snapshot).scan(row_filter=_expression(where)).to_arrow()

    def read_row_ids(self, table: str | Names, snapshot: int | None = None) -> pa.Table:
        """Return the rows at a snapshot with their row ids in a first column, `rowid`, sorted by it."""
        loaded = self._table(table, snapshot)
        files, inlined = TableScan(loaded).plan_updates(_every_row)
        parts = [
            match.rows.values.add_column(0, ROW_ID, match.rows.ids.cast(pa.int64()))
            for match in (*files, *inlined)
        ]
        rows = pa.concat_tables(parts) if parts else _without_rows(loaded)
        return rows.sort_by(ROW_ID)

    def count(self, table: str | Names, snapshot: int | None = None) -> int:
        return self._table(table, snapshot).scan().count()

    def changes(self, table: str | Names, start: int, end: int) -> pa.Table:
        """Return the change feed of two snapshots and those between, as `ducklake_table_changes` has it."""
        return self._table(table, end).changes(start, end).to_arrow()

    # transactions

    def begin(self, message: str | None = None) -> None:
        self._transaction = self._catalog.transaction(commit_message=message)

    def commit(self) -> int:
        transaction, self._transaction = self._transaction, None
        return transaction.commit().snapshot_id

    def rollback(self) -> None:
        transaction, self._transaction = self._transaction, None
        transaction.__exit__(RuntimeError, None, None)

    # rows

    def insert(self, table: str | Names, rows: pa.Table | list[dict[str, Any]]) -> int | None:
        """Append rows; a column that they leave out takes its default."""
        return self._write(lambda tx: tx.append(loaded := self._table_for(tx, table), _arrow(rows, loaded)))

    def delete(self, table: str | Names, where: str) -> int | None:
        return self._write(lambda tx: tx.delete(self._table_for(tx, table), _condition(where)))

    def update(self, table: str | Names, values: Mapping[str, Any], where: str = "true") -> int | None:
        """Give every matching row the same values."""
        return self._write(lambda tx: tx.update(self._table_for(tx, table), _condition(where), values))

    def upsert(
        self, table: str | Names, rows: pa.Table | list[dict[str, Any]], on: Sequence[str]
    ) -> int | None:
        return self._write(
            lambda tx: tx.upsert(loaded := self._table_for(tx, table), _arrow(rows, loaded), on)
        )

    def add_files(self, table: str | Names, paths: Sequence[str]) -> int | None:
        return self._write(lambda tx: tx.add_files(self._table_for(tx, table), paths))

    def flush(self, table: str | Names) -> int | None:
        return self._write(lambda tx: tx.flush_inlined_data(self._table_for(tx, table)))

    # definitions

    def create_schema(self, name: str | Names) -> int | None:
        if self._transaction is None:
            return self._catalog.create_namespace(name).snapshot_id  # which looks whether it is there
        return self._write(lambda tx: tx.add_namespace(name))

    def drop_schema(self, name: str | Names, *, cascade: bool = False) -> int:
        """Drop a schema, in a snapshot of its own."""
        return self._catalog.drop_namespace(name, cascade=cascade).snapshot_id

    def create_table(
        self,
        name: str | Names,
        columns: Mapping[str, Any],
        *,
        required: Sequence[str] = (),
        defaults: Mapping[str, str] | None = None,
    ) -> int:
        """Create a table, in a snapshot of its own.

        Args:
            columns: the type of each: a DuckLake type's text, a dict of fields for a struct, a list of one
                type for a list, a pair of types for a map.
            required: columns that are NOT NULL.
            defaults: the text of a column's default.
        """
        schema = schema_of(columns, required, defaults or {})
        return self._catalog.create_table(_identifier(name), schema=schema).snapshot().snapshot_id

    def drop_table(self, name: str | Names) -> int | None:
        return self._write(lambda tx: tx.drop_table(self._table_for(tx, name).table_id))

    def rename_table(self, name: str | Names, new_name: str) -> int | None:
        return self._write(lambda tx: tx.rename_table(self._table_for(tx, name), new_name))

    def add_column(
        self, table: str | Names, column: str, field_type: Any, *, default: object = None
    ) -> int | None:
        return self._alter(
            table, lambda update: update.add_column(column, type_of(field_type), default=default)
        )

    def drop_column(self, table: str | Names, column: str) -> int | None:
        return self._alter(table, lambda update: update.drop_column(column))

    def rename_column(self, table: str | Names, column: str, new_name: str) -> int | None:
        return self._alter(table, lambda update: update.rename_column(column, new_name))

    def set_column_type(self, table: str | Names, column: str, field_type: str) -> int | None:
        return self._alter(table, lambda update: update.set_column_type(column, type_of(field_type)))

    def set_default(self, table: str | Names, column: str, value: object) -> int | None:
        return self._alter(table, lambda update: update.set_default(column, value))

    def drop_default(self, table: str | Names, column: str) -> int | None:
        return self._alter(table, lambda update: update.drop_default(column))

    def set_not_null(self, table: str | Names, column: str) -> int | None:
        return self._alter(table, lambda update: update.set_not_null(column))

    def drop_not_null(self, table: str | Names, column: str) -> int | None:
        return self._alter(table, lambda update: update.drop_not_null(column))

    def partition_by(self, table: str | Names, *keys: str) -> int | None:
        """Partition by keys such as `region`, `epoch_day(ts)`, `bucket(4, id)`; by none without keys."""
        parsed = [partition_key(key) for key in keys]
        if not parsed:
            return self._write(lambda tx: tx.reset_partitioning(self._table_for(tx, table)))
        return self._write(lambda tx: tx.set_partitioning(self._table_for(tx, table), *parsed))

    def sort_by(self, table: str | Names, *keys: str) -> int | None:
        """Sort by columns, as `id` or `ts DESC`; no more without keys."""
        parsed = [sort_key(key) for key in keys]
        if not parsed:
            return self._write(lambda tx: tx.reset_sort_order(self._table_for(tx, table)))
        return self._write(lambda tx: tx.set_sort_order(self._table_for(tx, table), *parsed))

    def create_view(
        self, name: str | Names, sql: str, aliases: Sequence[str] = (), *, replace: bool = False
    ) -> int | None:
        return self._write(
            lambda tx: tx.add_view(_identifier(name), sql, column_aliases=aliases, replace=replace)
        )

    def rename_view(self, name: str | Names, new_name: str) -> int | None:
        return self._write(lambda tx: tx.rename_view(_identifier(name), new_name))

    def drop_view(self, name: str | Names) -> int | None:
        return self._write(lambda tx: tx.drop_view(_identifier(name)))

    def drop_macro(self, name: str | Names) -> int | None:
        return self._write(lambda tx: tx.drop_macro(_identifier(name)))

    def comment(self, name: str | Names, text: str | None, *, column: str | None = None) -> int | None:
        """Comment on a table, a view or a column of either; None removes the comment."""
        return self._write(
            lambda tx: (
                tx.remove_tag(self._commented(tx, name), "comment", column=column)
                if text is None
                else tx.set_tag(self._commented(tx, name), "comment", text, column=column)
            )
        )

    # options and maintenance, each on its own

    def set_option(
        self, name: str, value: object, *, schema: str | Names | None = None, table: str | Names | None = None
    ) -> None:
        """Set an option of the lake, or of a schema or a table; makes no snapshot."""
        named = None if table is None else _identifier(table)
        self._catalog.set_option(name, value, schema=schema, table=named)

    def reset_option(self, name: str, *, table: str | Names) -> None:
        self._catalog.reset_option(name, table=_identifier(table))

    def options(self) -> list[tuple[str, str, str, int | None]]:
        """Return the name, the value, the scope and its id of each option that is set."""
        return [(row.name, row.value, row.scope, row.scope_id) for row in self._catalog.option_rows()]

    def expire(
        self, *, versions: Sequence[int] | None = None, older_than: datetime | None = None
    ) -> tuple[int, ...]:
        """Expire snapshots and return their ids."""
        return self._catalog.expire_snapshots(versions=versions, older_than=older_than).snapshot_ids

    def merge(self, table: str | Names | None = None) -> None:
        """Merge adjacent files of a table, or of all."""
        self._catalog.merge_adjacent_files(None if table is None else _identifier(table))

    def rewrite(self, table: str | Names | None = None, *, threshold: float = 0.0) -> None:
        """Write the files again that have lost more than that fraction of their rows."""
        named = None if table is None else _identifier(table)
        self._catalog.rewrite_data_files(named, delete_threshold=threshold)

    def cleanup(self, *, older_than: datetime) -> None:
        """Delete the files that were scheduled before."""
        self._catalog.cleanup_old_files(older_than=older_than, exclusive=True)

    # how

    def _write(self, stage: Callable[[Transaction], object]) -> int | None:
        if self._transaction is not None:
            stage(self._transaction)
            return None
        with self._catalog.transaction() as transaction:
            stage(transaction)
            return transaction.commit().snapshot_id

    def _alter(self, table: str | Names, change: Callable[[Any], object]) -> int | None:
        def stage(transaction: Transaction) -> None:
            update = transaction.update_schema(self._table_for(transaction, table))
            change(update)
            update.commit()

        return self._write(stage)

    def _commented(self, transaction: Transaction, name: str | Names) -> Table | View:
        at = transaction.base_snapshot
        if self._catalog.view_exists(_identifier(name), snapshot=at):
            return self._catalog.load_view(_identifier(name), snapshot=at)
        return self._table_for(transaction, name)

    def _table_for(self, transaction: Transaction, name: str | Names) -> Table:
        return self._catalog.load_table(_identifier(name), snapshot=transaction.base_snapshot)

    def _table(self, name: str | Names, snapshot: int | None = None) -> Table:
        return self._catalog.load_table(_identifier(name), snapshot=self._at(snapshot))

    def _at(self, snapshot: int | None) -> Any:
        return None if snapshot is None else self._catalog.snapshot_by_id(snapshot)

    def _of_every_schema(
        self, listing: Callable[..., list[TableIdentifier]], snapshot: int | None
    ) -> list[Names]:
        at = self._at(snapshot)
        return [
            (*schema, found.name)
            for schema in self.schemas(snapshot)
            for found in listing(schema, snapshot=at)
        ]


def _identifier(name: str | Names) -> TableIdentifier:
    names = to_names(name)
    return TableIdentifier.parse(names if len(names) > 1 else ("main", *names))


def _arrow(rows: pa.Table | list[dict[str, Any]], table: Table) -> pa.Table:
    if isinstance(rows, pa.Table):
        return rows
    named = {name for row in rows for name in row}
    schema = table.scan().output_schema()
    return pa.Table.from_pylist(rows, schema=pa.schema([field for field in schema if field.name in named]))


def _condition(where: str) -> Callable[[pa.Table], pa.ChunkedArray]:
    def hits(rows: pa.Table) -> pa.ChunkedArray:
        with duckdb.connect() as connection:
            connection.register("rows", rows)
            found = connection.sql(f"SELECT CAST(({where}) AS BOOLEAN) AS hit FROM rows")
            return found.to_arrow_table()["hit"]

    return hits


def _every_row(rows: pa.Table) -> pa.Array:
    return pa.repeat(pa.scalar(value=True), rows.num_rows)


def _without_rows(table: Table) -> pa.Table:
    schema = table.scan().output_schema()
    return pa.schema([pa.field(ROW_ID, pa.int64()), *schema]).empty_table()


_COMPARISONS: dict[str, Callable[[Any, Any], Expression]] = {
    "=": lambda column, value: column == value,
    "<": lambda column, value: column < value,
    "<=": lambda column, value: column <= value,
    ">": lambda column, value: column > value,
    ">=": lambda column, value: column >= value,
}


def _expression(where: Sequence[tuple[str, str, object]]) -> Expression:
    found: Expression = AlwaysTrue()
    for column, comparison, value in where:
        found &= _COMPARISONS[comparison](col(column), value)
    return found
