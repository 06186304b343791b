"""A lake of 1.1 that we and ducklakepy write in turns, and what it has to hold: drawn steps and a model.

Every table has an `id`, which no other row of the lake has, and a number `n`. Other columns are drawn. A
value of a model is what `physical` makes of it: times are numbers of their unit. `docs` has variants, which
only ducklakepy writes, and only inlined.
"""

import random
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from json import dumps
from typing import Any

import pyarrow as pa

from airflow_provider_ducklake.lake.catalog.drafting.ddl import apply_ddl
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.format.names.identifiers import quote
from airflow_provider_ducklake.lake.format.types.variants import encode_variant
from airflow_provider_ducklake.lake.format.versions import NEWEST, write_version
from airflow_provider_ducklake.lake.planning.writing.write import plan_write
from airflow_provider_ducklake.lake.sql.duckdb.ddl import parse_ddl
from airflow_provider_ducklake.lake.storage.files.filesystem import open_filesystem
from airflow_provider_ducklake.lake.storage.nested_values.shredding import VARIANT
from airflow_provider_ducklake.lake.storage.rows.table_reader import ROW_ID, visible_rows
from tests.concurrency import arrow_jobs
from tests.interop.jobs import commit_changes, merge_adjacent, rewrite, row_changes
from tests.reference.duckdb_core import DuckDBCore
from tests.reference.ducklakepy_lake import DuckLakePyLake

Names = tuple[str, ...]
OURS, THEIRS = "ours", "ducklakepy"
DOCS = ("main", "docs")

ARROW = {
    "int64": pa.int64(),
    "int32": pa.int32(),
    "varchar": pa.string(),
    "float64": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "timestamptz_ns": pa.timestamp("ns", "UTC"),
    "null": pa.null(),
}
EPOCHS = {"date": ("year", "month", "day"), "timestamp": ("year", "month", "day", "hour")}
EPOCHS["timestamptz"] = EPOCHS["timestamp"]
MICROSECONDS = 10**6
NEW_NAMES = ("row_id", "begin_snapshot", "end_snapshot", "a", "b", "c", "nothing", "order", "x y")


def drawn_value(draw: random.Random, type_: str) -> Any:
    """Return a value of a column in its physical form."""
    if type_ == "null" or draw.random() < 0.15:
        return None
    days = draw.randint(-800, 800)
    match type_:
        case "varchar":
            return draw.choice(("", "a", "é", "it's", "NULL", "x" * draw.choice((3, 255, 256, 300))))
        case "float64":
            return draw.choice((0.5, -1.0, 1e300, -0.25, 7.0))
        case "date":
            return days
        case "timestamp" | "timestamptz":
            return (days * 86_400 + draw.randint(0, 86_399)) * MICROSECONDS + draw.choice((0, 1, 999_999))
        case "timestamptz_ns":
            return days * 86_400 * 10**9 + draw.randint(0, 10**9)
        case _:
            return draw.randint(-1000, 1000)


def arrow_of(columns: Mapping[str, str], rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    rows = list(rows)
    return pa.table({name: _array([row[name] for row in rows], type_) for name, type_ in columns.items()})


def _array(values: list[Any], type_: str) -> pa.Array:
    target = ARROW[type_]
    if pa.types.is_temporal(target):
        numbers = pa.int32() if target == pa.date32() else pa.int64()
        return pa.array(values, numbers).cast(target)
    return pa.array(values, target)


def physical(rows: pa.Table, columns: Mapping[str, str]) -> dict[int, dict[str, Any]]:
    """Return rows by their id, with values as the model has them."""
    values = {name: numbers_of(rows[name], type_) for name, type_ in columns.items()}
    found = [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
    by_id = {row["id"]: row for row in found}
    assert len(by_id) == len(found), "a row is there twice"
    return by_id


def numbers_of(column: pa.ChunkedArray, type_: str) -> list[Any]:
    """Return values in their physical form."""
    if type_ == "null":
        assert column.null_count == len(column)
        return [None] * len(column)
    column = column.cast(ARROW[type_])
    if type_ == "date":
        return column.cast(pa.int32()).to_pylist()
    return (column.cast(pa.int64()) if pa.types.is_temporal(column.type) else column).to_pylist()


@dataclass(frozen=True)
class TableModel:
    """What a table holds: `columns` by name with their types, `rows` by id; `key` tells it from others."""

    key: int
    columns: Mapping[str, str]
    rows: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    partition: str = ""

    def with_rows(self, rows: Iterable[Mapping[str, Any]]) -> "TableModel":
        return replace(self, rows={**self.rows, **{row["id"]: row for row in rows}})

    def without(self, ids: Iterable[int]) -> "TableModel":
        gone = set(ids)
        return replace(self, rows={key: row for key, row in self.rows.items() if key not in gone})


@dataclass
class Model:
    """The lake: schemas, tables, and views with the comments of their columns."""

    schemas: set[Names] = field(default_factory=lambda: {("main",)})
    tables: dict[Names, TableModel] = field(default_factory=dict)
    views: dict[Names, dict[str, str]] = field(default_factory=dict)


Changes = dict[Names, Counter[tuple[str, int]]]


class Turns:
    """Both clients on one lake, and its model; each step draws who writes."""

    def __init__(self, lake: Lake, theirs: DuckLakePyLake, core: DuckDBCore, draw: random.Random) -> None:
        self.lake, self.theirs, self.core, self.draw = lake, theirs, core, draw
        self.model = Model()
        self.past: dict[int, dict[Names, TableModel]] = {}  # the tables at each living snapshot
        self.row_ids: dict[tuple[int, int], int] = {}  # of a row, by its table's key and its id
        self.counts: Counter[str] = Counter()
        self.changed: Changes = {}  # what the step's snapshot says of tables
        self._next = 0
        theirs.create_table(DOCS, {"id": "int64", "n": "int32", "doc": "variant"})
        theirs.set_option("data_inlining_row_limit", 1000, table=DOCS)
        lake.set_option("data_inlining_row_limit", draw.choice((0, 4)))
        lake.set_option("write_deletion_vectors", value=True)
        self.model.tables[DOCS] = TableModel(0, {"id": "int64", "n": "int32"})
        self.documents: dict[int, object] = {}

    # --- steps

    def step(self) -> str:
        """Do one thing, and return what it was."""
        while True:
            steps = STEPS if len(self.past) >= len(FIRST) * 4 else FIRST
            verb = self.draw.choices(list(steps), list(steps.values()))[0]
            self.changed = {}
            self.writer = self.draw.choice((OURS, THEIRS))
            if verb(self):
                break
        self.counts["transactions"] += 1
        self.counts[f"{verb.__name__} by {self.writer}"] += 1
        self.past[self.head] = dict(self.model.tables)
        return f"{verb.__name__} by {self.writer}"

    @property
    def head(self) -> int:
        return self.lake.current_snapshot().id

    @property
    def is_ours(self) -> bool:
        return self.writer == OURS

    def ddl(self, text: str) -> None:
        with self.lake.transaction() as tx:
            apply_ddl(tx, parse_ddl(text, write_version(NEWEST)))

    def _new(self) -> int:
        self._next += 1
        return self._next

    def _table(self, *, with_rows: bool = False) -> tuple[Names, TableModel] | None:
        found = [
            (name, table)
            for name, table in self.model.tables.items()
            if name != DOCS and (table.rows or not with_rows)
        ]
        return self.draw.choice(found) if found else None

    def _put(self, name: Names, table: TableModel, kind: str = "", ids: Iterable[int] = ()) -> bool:
        self.model.tables[name] = table
        if kind:
            kinds = ("update_preimage", "update_postimage") if kind == "update" else (kind,)
            self.changed.setdefault(name, Counter()).update((one, id_) for one in kinds for id_ in ids)
        return True

    def _note(self, table: TableModel, what: str) -> None:
        """Count the features of 1.1 in rows that were written."""
        for name, type_ in table.columns.items():
            if type_ in ("null", "timestamptz_ns"):
                self.counts[f"{what}: type {type_}"] += 1
            if name in NEW_NAMES[:3]:
                self.counts[f"{what}: column {name}"] += 1
        if table.partition.startswith("epoch_"):
            self.counts[f"{what}: {table.partition.partition('(')[0]}"] += 1

    # definitions

    def create_schema(self) -> bool:
        parent = self.draw.choice([(), *sorted(self.model.schemas)])
        name = (*parent, self.draw.choice(("s", "deep", "Dot.ted", "n")))
        if len(name) > 3 or name == ("main",) or any(_same(name, one) for one in self.model.schemas):
            return False
        if self.is_ours:
            with self.lake.transaction() as tx:
                tx.create_schema(name)
        else:
            self.theirs.create_schema(name)
        self.model.schemas.add(name)
        self.counts["nested schemas"] += len(name) > 1
        return True

    def drop_schema(self) -> bool:
        name = self.draw.choice(sorted(self.model.schemas))
        below = {one for one in self.model.schemas if one[: len(name)] == name}
        if (name[0] == "main" and len(name) == 1) or len(self.model.schemas) < 5:
            return False
        if self.is_ours:
            with self.lake.transaction() as tx:
                tx.drop_schema(name, cascade=True)
        else:
            self.theirs.drop_schema(name, cascade=True)
        self.model.schemas -= below
        self.counts["nested schemas dropped with what is in them"] += len(below) > 1 or len(name) > 1
        for named in (self.model.tables, self.model.views):
            for one in [one for one in named if one[:-1] in below]:
                del named[one]
        return True

    def create_table(self) -> bool:
        if len(self.model.tables) > 6:
            return False
        name = (*self.draw.choice(sorted(self.model.schemas)), self.draw.choice(("t", "u", "Orders", "t 2")))
        if any(_same(name, one) for one in (*self.model.tables, *self.model.views)):
            return False
        columns = {"id": "int64", "n": "int32", "moment": self.draw.choice([*EPOCHS])}
        for column in self.draw.sample(NEW_NAMES, self.draw.randint(1, 4)):
            columns[column] = self.draw.choice([*ARROW][1:])
        if self.is_ours:
            with self.lake.transaction() as tx:
                tx.create_table(name, columns)
        else:
            self.theirs.create_table(name, columns)
        self.counts["tables in nested schemas"] += len(name) > 2
        return self._put(name, TableModel(self._new(), columns))

    def drop_table(self) -> bool:
        found = self._table()
        if found is None or len(self.model.tables) < 4:
            return False
        if self.is_ours:
            with self.lake.transaction() as tx:
                tx.drop_table(found[0])
        else:
            self.theirs.drop_table(found[0])
        del self.model.tables[found[0]]
        return True

    def rename_table(self) -> bool:
        found = self._table()
        if found is None:
            return False
        name, table = found
        new = (*name[:-1], self.draw.choice(("renamed", "Other", "t")))
        if any(_same(new, one) for one in (*self.model.tables, *self.model.views)):
            return False
        if self.is_ours:
            with self.lake.transaction() as tx:
                tx.rename_table(name, new[-1])
        else:
            self.theirs.rename_table(name, new[-1])
        self.counts["renamed tables of nested schemas"] += len(name) > 2
        del self.model.tables[name]
        return self._put(new, table)

    def add_column(self) -> bool:
        found = self._table()
        if found is None or len(found[1].columns) > 7:
            return False
        name, table = found
        free = [one for one in NEW_NAMES if one not in table.columns]
        type_, default = self.draw.choice([*ARROW][1:]), None
        column = self.draw.choice(free)
        if type_ == "int32" and self.draw.random() < 0.7:
            default = self.draw.randint(0, 9)
        if self.is_ours:
            with self.lake.transaction() as tx:
                tx.add_column(name, column, type_, default)
        else:
            self.theirs.add_column(name, column, type_, default=default)
        rows = {id_: {**row, column: default} for id_, row in table.rows.items()}
        return self._put(name, replace(table, columns={**table.columns, column: type_}, rows=rows))

    def _column(self, table: TableModel, *types: str) -> str | None:
        found = [
            name
            for name, type_ in table.columns.items()
            if name not in ("id", "n")
            and (not types or type_ in types)
            and f"({name})" not in table.partition
        ]
        return self.draw.choice(found) if found else None

    def drop_column(self) -> bool:
        found = self._table()
        column = found and self._column(found[1])
        if found is None or column is None or len(found[1].columns) < 4:
            return False
        name, table = found
        if self.is_ours:
            with self.lake.transaction() as tx:
                tx.drop_column(name, column)
        else:
            self.theirs.drop_column(name, column)
        rows = {id_: _without(row, column) for id_, row in table.rows.items()}
        return self._put(name, replace(table, columns=_without(table.columns, column), rows=rows))

    def rename_column(self) -> bool:
        found = self._table()
        column = found and self._column(found[1])
        if found is None or column is None:
            return False
        name, table = found
        new = self.draw.choice([one for one in NEW_NAMES if one not in table.columns])
        if self.is_ours:
            with self.lake.transaction() as tx:
                tx.rename_column(name, column, new)
        else:
            self.theirs.rename_column(name, column, new)
        rows = {id_: _renamed(row, column, new) for id_, row in table.rows.items()}
        return self._put(name, replace(table, columns=_renamed(table.columns, column, new), rows=rows))

    def promote_column(self) -> bool:
        found = self._table()
        column = found and self._column(found[1], "int32")
        if found is None or column is None:
            return False
        name, table = found
        if self.is_ours:
            with self.lake.transaction() as tx:
                tx.set_column_type(name, column, "int64")
        else:
            self.theirs.set_column_type(name, column, "int64")
        return self._put(name, replace(table, columns={**table.columns, column: "int64"}))

    def partition(self) -> bool:
        found = self._table()
        if found is None:
            return False
        name, table = found
        column = self._column(table, *EPOCHS)
        keys = ["", "bucket(3, id)"]
        if column is not None:
            units = EPOCHS[table.columns[column]]
            unit = min(units, key=lambda one: self.counts[f"inserted: epoch_{one}"])  # the rarest so far
            keys = [f"epoch_{unit}({column})"] * 8 + keys
        key = self.draw.choice(keys)
        if key == table.partition or (" " in (column or "") and key.startswith("epoch_")):
            return False
        if self.is_ours:
            with self.lake.transaction() as tx:
                tx.set_partitioned_by(name, [key] if key else [])
        else:
            self.theirs.partition_by(name, *([key] if key else []))
        return self._put(name, replace(table, partition=key))

    def view(self) -> bool:
        """Make a view, comment on one of its columns, or drop it."""
        if self.model.views and self.draw.random() < 0.7:
            name = self.draw.choice(sorted(self.model.views))
            if self.draw.random() < 0.15:
                return self._drop_view(name)
            return self._comment(name, self.draw.choice(("i", "J")))
        name = (*self.draw.choice(sorted(self.model.schemas)), self.draw.choice(("v", "w")))
        if any(_same(name, one) for one in (*self.model.tables, *self.model.views)):
            return False
        query = "SELECT 1 AS i, 2 AS j"
        if self.is_ours:
            with self.lake.transaction() as tx:
                tx.create_view(name, query)
        else:
            self.theirs.create_view(name, query)
        self.model.views[name] = {}
        return True

    def _drop_view(self, name: Names) -> bool:
        if self.is_ours:
            with self.lake.transaction() as tx:
                tx.drop_view(name)
        else:
            self.theirs.drop_view(name)
        del self.model.views[name]
        return True

    def _comment(self, name: Names, column: str) -> bool:
        text = f"comment {self._new()}"
        if self.is_ours:
            self.ddl(f"COMMENT ON COLUMN {'.'.join(map(quote, name))}.{column} IS '{text}'")
        else:
            self.theirs.comment(name, text, column=column.lower())
        self.model.views[name][column.lower()] = text
        self.counts["comments on columns of views"] += 1
        return True

    # rows

    def _rows(self, table: TableModel, count: int) -> list[dict[str, Any]]:
        return [self._row(table) for _ in range(count)]

    def _row(self, table: TableModel) -> dict[str, Any]:
        row = {name: drawn_value(self.draw, type_) for name, type_ in table.columns.items()}
        return {**row, "id": self._new()}

    def _their_rows(self, table: TableModel, rows: list[dict[str, Any]]) -> pa.Table:
        """Return rows as ducklakepy takes them: without columns of which there is nothing to say."""
        return arrow_of({name: type_ for name, type_ in table.columns.items() if type_ != "null"}, rows)

    def insert(self) -> bool:
        found = self._table()
        if found is None:
            return False
        name, table = found
        rows = self._rows(table, self.draw.choice((1, 2, 3, 12)))
        if self.is_ours:
            self.lake.append_arrow(name, arrow_of(table.columns, rows))
        else:
            self.theirs.insert(name, self._their_rows(table, rows))
        self._note(table, "inserted")
        return self._put(name, table.with_rows(rows), "insert", [row["id"] for row in rows])

    def _some(self, table: TableModel) -> list[int]:
        ids = sorted(table.rows)
        return sorted(self.draw.sample(ids, min(len(ids), self.draw.choice((1, 1, 2, 5)))))

    def delete(self) -> bool:
        found = self._table(with_rows=True)
        if found is None:
            return False
        name, table = found
        ids = self._some(table)
        if self.is_ours:
            places = located(self.lake, name)
            positions, inlined = _apart(places[one] for one in ids)
            with self.lake.transaction() as tx:
                tx.delete_at(name, positions, inlined)
        else:
            self.theirs.delete(name, _in(ids))
        return self._put(name, table.without(ids), "delete", ids)

    def update(self) -> bool:
        found = self._table(with_rows=True)
        if found is None:
            return False
        name, table = found
        ids, value = self._some(table), self.draw.randint(2000, 3000)
        rows = [{**table.rows[one], "n": value} for one in ids]
        if self.is_ours:
            self._update(name, table, rows)
        else:
            self.theirs.update(name, {"n": value}, _in(ids))
        self._note(table, "updated")
        return self._put(name, table.with_rows(rows), "update", ids)

    def _update(self, name: Names, table: TableModel, rows: list[dict[str, Any]]) -> None:
        snapshot = self.lake.table_snapshot(name, with_files=True)
        places = located(self.lake, name)
        positions, inlined = _apart(places[row["id"]] for row in rows)
        ids = pa.array([places[row["id"]].row_id for row in rows], pa.int64())
        updated = arrow_of(table.columns, rows).append_column(ROW_ID.name, ids)
        plan = plan_write(snapshot, f"{snapshot.root}ducklake-{uuid.uuid4()}/")
        changes = row_changes(self.lake, snapshot, positions, inlined=inlined)
        written = arrow_jobs.write(plan, updated, row_ids=True)
        nothing = replace(written, data_files=(), rows_written=0)
        commit_changes(self.lake, snapshot, replace(changes, updated=written, inserted=nothing))

    def variant(self) -> bool:
        """Let either client insert a variant, or delete one; a flush of ours writes them to files."""
        table = self.model.tables[DOCS]
        if table.rows and self.draw.random() < 0.4:
            ids = [self.draw.choice(sorted(table.rows))]
            if self.is_ours:
                with self.lake.transaction() as tx:
                    tx.delete_rows(DOCS, filter=f"id = {ids[0]}")
            else:
                self.theirs.delete(DOCS, _in(ids))
            return self._put(DOCS, table.without(ids), "delete", ids)
        id_, document = self._new(), self.draw.choice((5, "x", [1, "é"], {"b": {"c": []}, "a": 1.5}))
        if self.is_ours:
            doc = dict(zip(("metadata", "value"), encode_variant(document), strict=True))
            row = {"id": pa.array([id_], pa.int64()), "n": pa.array([id_], pa.int32())}
            self.lake.append_arrow(DOCS, pa.table(row | {"doc": pa.array([doc], VARIANT)}))
        else:
            json = dumps(document).replace("'", "''")
            query = f"SELECT {id_}::BIGINT AS id, {id_}::INTEGER AS n, '{json}'::JSON::VARIANT AS doc"
            self.theirs.insert(DOCS, self.core.arrow(query))
        self.documents[id_] = document
        self.counts["inlined variants"] += 1
        return self._put(DOCS, table.with_rows([{"id": id_, "n": id_}]), "insert", [id_])

    def upsert(self) -> bool:
        found = self._table(with_rows=True)
        if found is None or self.is_ours:
            return False
        name, table = found
        old = [{**row, "id": id_} for id_, row in zip(self._some(table), self._rows(table, 5), strict=False)]
        new = self._rows(table, 2)
        self.theirs.upsert(name, self._their_rows(table, [*old, *new]), ["id"])
        self._put(name, table.with_rows([*old, *new]), "update", [row["id"] for row in old])
        return self._put(name, self.model.tables[name], "insert", [row["id"] for row in new])

    # upkeep

    def flush(self) -> bool:
        return self._upkeep(self.lake.flush_inlined_data, self.theirs.flush)

    def merge(self) -> bool:
        return self._upkeep(partial(merge_adjacent, self.lake), self.theirs.merge)

    def rewrite(self) -> bool:
        return self._upkeep(partial(rewrite, self.lake), self.theirs.rewrite)

    def _upkeep(self, ours: Callable[[Names], object], theirs: Callable[[Names], object]) -> bool:
        """Work on the files of a table; return whether there was something to do."""
        found = self._table(with_rows=True)
        if found is None:
            return False
        before = self.head
        (ours if self.is_ours else theirs)(found[0])
        return self.head > before

    def option(self) -> bool:
        """Write more or less into the catalog, or deletes as vectors or as Parquet."""
        name, value = self.draw.choice(
            (
                ("data_inlining_row_limit", self.draw.choice((0, 0, 4))),
                ("write_deletion_vectors", self.draw.choice((True, True, False))),
            )
        )
        found = self._table() if self.draw.random() < 0.3 else None
        if self.is_ours:
            self.lake.set_option(name, value, **({} if found is None else {"table": found[0]}))
        else:
            self.theirs.set_option(name, str(value).lower(), **({} if found is None else {"table": found[0]}))
        return True

    def expire(self) -> bool:
        living = [one.id for one in self.lake.snapshots()]
        if len(living) < 12:
            return False
        gone = self.draw.sample(living[:-4], len(living) // 2)
        if self.is_ours:
            self.lake.expire_snapshots(snapshots=gone)
            self.lake.cleanup_old_files(older_than=timedelta(0))
        else:
            self.theirs.expire(versions=gone)
            self.theirs.cleanup(older_than=datetime.now(UTC) + timedelta(days=1))
        for one in gone:
            self.past.pop(one, None)
        return True

    def restore(self) -> bool:
        found = self._table()
        if found is None or not self.is_ours:
            return False
        name, table = found
        earlier = [
            one for one, tables in self.past.items() if name in tables and tables[name].key == table.key
        ]
        if not earlier:
            return False
        at = self.draw.choice(earlier)
        if self.lake.restore(name, at=at).committed is None:
            return False
        for key in [key for key in self.row_ids if key[0] == table.key]:
            del self.row_ids[key]
        return self._put(name, self.past[at][name])


STEPS: dict[Callable[[Turns], bool], int] = {
    Turns.create_schema: 6,
    Turns.drop_schema: 3,
    Turns.create_table: 8,
    Turns.drop_table: 1,
    Turns.rename_table: 7,
    Turns.add_column: 4,
    Turns.drop_column: 2,
    Turns.rename_column: 3,
    Turns.promote_column: 2,
    Turns.partition: 7,
    Turns.view: 5,
    Turns.insert: 24,
    Turns.delete: 24,
    Turns.update: 12,
    Turns.upsert: 6,
    Turns.variant: 6,
    Turns.flush: 16,
    Turns.merge: 4,
    Turns.rewrite: 4,
    Turns.option: 4,
    Turns.expire: 2,
    Turns.restore: 4,
}


FIRST = {Turns.create_schema: 1, Turns.create_table: 1, Turns.partition: 1}  # of a lake without anything


def _same(one: Names, other: Names) -> bool:
    return [part.lower() for part in one] == [part.lower() for part in other]


def _without(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key != name}


def _renamed(values: Mapping[str, Any], old: str, new: str) -> dict[str, Any]:
    return {new if key == old else key: value for key, value in values.items()}


def _in(ids: list[int]) -> str:
    return f"id IN ({', '.join(map(str, ids))})"


# --- where rows lie


@dataclass(frozen=True)
class Place:
    """Of a live row: its file and the position in it, None for an inlined one, and its row id."""

    file_id: int | None
    position: int | None
    row_id: int


def located(lake: Lake, name: Names) -> dict[int, Place]:
    """Return where the live rows are, by the values of `id`."""
    plan = lake.scan(name, columns=["id"])
    found: dict[int, Place] = {}
    for file in plan.files:
        rows = visible_rows(plan, file, open_filesystem, numbered=True)
        for id_, row_id, position in zip(*(column.to_pylist() for column in rows.columns), strict=True):
            found[id_] = Place(file.id, position, row_id)
    for part in plan.inlined_rows:
        for row, row_id in zip(part.rows, part.row_ids, strict=True):
            found[row["id"]] = Place(None, None, row_id)
    return found


def _apart(places: Iterable[Place]) -> tuple[dict[int, list[int]], list[int]]:
    positions: dict[int, list[int]] = defaultdict(list)
    inlined: list[int] = []
    for place in places:
        if place.file_id is None:
            inlined.append(place.row_id)
        else:
            positions[place.file_id].append(place.position)
    return positions, inlined
