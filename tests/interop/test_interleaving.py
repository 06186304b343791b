"""Random histories in which the reference does everything it can between our appends."""

import math
import random
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.catalog.drafting.transaction import LakeTransaction
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import TransactionConflictError
from airflow_provider_ducklake.lake.format.names.identifiers import quote
from airflow_provider_ducklake.lake.planning.upkeep.findings import FindingCode
from airflow_provider_ducklake.lake.transaction.changes_made import ChangeKind
from tests.reference.catalog_dump import Dump, dump_catalog
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import DuckLakeConnection, open_lake

ARROW = {
    "int32": pa.int32(),
    "int64": pa.int64(),
    "varchar": pa.string(),
    "float64": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "decimal(9,2)": pa.decimal128(9, 2),
    "decimal(18,2)": pa.decimal128(18, 2),
}
DUCKDB = {"int32": "integer", "int64": "bigint", "float64": "double"}
# Not date to timestamp: in older files the reference looks for the day of a moment, and loses rows.
WIDER = {"int32": "int64", "decimal(9,2)": "decimal(18,2)"}

TEXTS = [None, "", "a", "b", "B", "ä", "it's", 'q"uote', "x/y=z %", "😀", "z" * 300, "\n"]
WILD_TEXTS = [None, "a\0b", "é" * 200, "\x7f" * 300, "m" + "é" * 200, "", "zz"]
# No -0.0: in files that the reference wrote it does not find it by `= 0.0`.
WILD_FLOATS = [None, math.nan, math.inf, -math.inf, 0.0, 1.5, -2.25]
KEYS = [None, "a", "b", "x/y=z %ä", ""]


@dataclass(eq=False)
class Column:
    name: str
    type: str
    stays: bool = False  # never dropped: the id and the partition keys

    @property
    def sql(self) -> str:
        return quote(self.name)


@dataclass(eq=False)
class Table:
    schema: str
    name: str
    columns: list[Column]
    rows: dict[int, dict[Column, Any]] = field(default_factory=dict)  # by the value of the first column
    wild: bool = False  # we write values into it that the reference cannot keep bounds of

    @property
    def sql(self) -> str:
        return f"{quote(self.schema)}.{quote(self.name)}"

    @property
    def qualified(self) -> tuple[str, str]:
        return self.schema, self.name

    def column(self, name: str) -> Column:
        return next(column for column in self.columns if column.name == name)

    def content(self) -> list[tuple[Any, ...]]:
        return sorted_rows(tuple(row[column] for column in self.columns) for row in self.rows.values())

    def matching(self, column: Column, operator: str, value: Any) -> list[int]:
        """Return the ids of the rows for which ``column <operator> value`` is true in DuckDB."""
        found = [row[column] for row in self.rows.values()]
        ids = list(self.rows)
        return sorted(row_id for row_id, own in zip(ids, found, strict=True) if _holds(own, operator, value))


def _holds(own: Any, operator: str, value: Any) -> bool:
    if operator == "IS NULL":
        return own is None
    if own is None or value is None:
        return False
    left, right = order(own), order(value)
    match operator:
        case "=":
            return left == right
        case "<":
            return left < right
        case ">=":
            return left >= right
    raise AssertionError(operator)


def order(value: Any) -> Any:
    """Return what orders values of one column as DuckDB does: NaN above all numbers, text by bytes."""
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value)
    return value.encode() if isinstance(value, str) else value


def sorted_rows(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted((tuple(map(_comparable, row)) for row in rows), key=repr)


def _comparable(value: Any) -> Any:
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0  # no -0.0
    return value


class Values:
    """Draws values, one table at a time, with ids that never repeat."""

    def __init__(self, random_: random.Random) -> None:
        self.random = random_
        self.next_id = 0

    def rows(self, table: Table, count: int, *, wild: bool = False) -> list[dict[Column, Any]]:
        return [self._row(table, wild=wild) for _ in range(count)]

    def _row(self, table: Table, *, wild: bool) -> dict[Column, Any]:
        first, *others = table.columns
        self.next_id += 1
        return {first: self.next_id} | {column: self.value(column, wild=wild) for column in others}

    def value(self, column: Column, *, wild: bool = False) -> Any:
        draw = self.random
        if draw.random() < 0.15:
            return None
        if column.name == "k":
            return draw.choice(KEYS)
        return self._of_type(column.type, wild=wild)

    def _of_type(self, type_: str, *, wild: bool) -> Any:
        draw = self.random
        days = timedelta(days=draw.randint(-900, 900))
        some: dict[str, list[Any]] = {
            "int32": [draw.randint(-9, 9), draw.randint(-(2**31), 2**31 - 1)],
            "int64": [draw.randint(-9, 9), draw.randint(-(2**63), 2**63 - 1)],
            "varchar": WILD_TEXTS if wild else TEXTS,
            "float64": WILD_FLOATS if wild else [draw.uniform(-1e3, 1e3)],
            "date": [date(2024, 1, 1) + days],
            "timestamp": [datetime(2024, 1, 1) + days + timedelta(microseconds=draw.randint(0, 10**10))],  # noqa: DTZ001 - the type has no zone
        }
        decimals = [Decimal(draw.randint(-99_999, 99_999)).scaleb(-2)]
        return draw.choice(some.get(type_, decimals))


def arrow_of(table: Table, rows: list[dict[Column, Any]]) -> pa.Table:
    return pa.table(
        {column.name: pa.array([row[column] for row in rows], ARROW[column.type]) for column in table.columns}
    )


# Random histories in which the reference does everything it can between our appends.


# DuckDB 1.5.5 keeps bounds that leave rows out, and flushes into second delete files (docs/verify.md).
REFERENCE_FAULTS = {FindingCode.TABLE_STATS_NARROW, FindingCode.TWO_DELETE_FILES}
STEPS = {"ci": 40, "full": 220}
# What the reference has done to a table that our append, planned before it, does not go together with. A
# flush of inlined deletes is recorded as a delete, so it is among them.
CONFLICTING = {ChangeKind.ALTERED_TABLE}  # with an append


def new_tables() -> list[Table]:
    def columns(**types: str) -> list[Column]:
        return [Column(name, type_, stays=name in ("id", "k", "t")) for name, type_ in types.items()]

    usual = {"id": "int64", "k": "varchar", "t": "timestamp", "n": "int32", "s": "varchar", "d": "date"}
    return [
        Table("main", "plain", columns(**usual, x="decimal(9,2)", f="float64")),
        Table("main", "parts", columns(**usual)),
        Table('od"d', "na.me", columns(id="int64", k="varchar", t="timestamp", n="int32")),
        Table("main", "wild", columns(id="int64", f="float64", u="varchar"), wild=True),
    ]


class History:
    """One lake, its content as a model, and a reference client that stays open all the time."""

    def __init__(self, catalog: CatalogDatabase, lake: Lake, running: DuckLakeConnection, seed: int) -> None:
        self.catalog = catalog
        self.lake = lake
        self.running = running
        self.random = random.Random(seed)
        self.values = Values(self.random)
        self.tables = new_tables()
        self.log: list[str] = []
        self.counter = 0

    def create(self) -> None:
        with self.lake.transaction(author="us") as tx:
            tx.create_schema('od"d')
            for table in self.tables:
                partition_by = ["bucket(3, id)", "year(t)"] if table.name == "parts" else []
                types = {column.name: column.type for column in table.columns}
                tx.create_table(table.qualified, types, partition_by)

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        self.log.append(text)
        return self.running.sql(text)

    def name(self) -> str:
        self.counter += 1
        return f'c"{self.counter}. é'

    def some(self, table: Table, count: int) -> list[int]:
        return self.random.sample(sorted(table.rows), min(count, len(table.rows)))

    def step(self) -> list[Table]:
        """Draw one step and take it; return the tables to look at."""
        draw = self.random
        table = draw.choice(self.tables)
        if draw.random() < 0.45:
            ours = [self.append, self.append_to_two, self.append_late, self.replace, self.expire]
            return draw.choices(ours, [6, 2, 3, 0.5, 0.5])[0](table)
        self.theirs(table)
        return [table]

    def append(self, table: Table) -> list[Table]:
        self._commit([table])
        return [table]

    def append_to_two(self, table: Table) -> list[Table]:
        pair = [table, self.random.choice([other for other in self.tables if other is not table])]
        self._commit(pair)
        return pair

    def _commit(self, tables: list[Table]) -> None:
        with self.lake.transaction(author="us") as tx:
            added = [(table, self._append(tx, table)) for table in tables for _ in range(2)]
        for table, rows in added:
            _add(table, rows)

    def _append(self, tx: LakeTransaction, table: Table) -> list[dict[Column, Any]]:
        rows = self.values.rows(table, self.random.choice([1, 3, 25]), wild=table.wild)
        self.log.append(f"ours: append {len(rows)} rows to {table.sql}")
        tx.append_arrow(table.qualified, arrow_of(table, rows))
        return rows

    def append_late(self, table: Table) -> list[Table]:
        """Plan an append, let the reference commit, then commit ours."""
        tx = self.lake.transaction(author="us")
        rows = self._append(tx, table)
        touched = self.random.choice([table, table, self.random.choice(self.tables)])
        before = self.lake.current_snapshot().id
        self.theirs(touched)
        if self._recorded(table, before) & CONFLICTING:
            self.log.append("ours: conflict expected")
            with pytest.raises(TransactionConflictError), tx:
                pass
        else:
            with tx:
                pass
            _add(table, rows)
        return [table, touched]

    def _recorded(self, table: Table, after: int) -> set[ChangeKind | None]:
        table_id = self.lake.table_snapshot(table.qualified).table_id
        newer = [snapshot for snapshot in self.lake.snapshots() if snapshot.id > after]
        return {
            record.kind for snapshot in newer for record in snapshot.changes if record.object_id == table_id
        }

    def replace(self, table: Table) -> list[Table]:
        self.log.append(f"ours: replace {table.sql}")
        with self.lake.transaction(author="us") as tx:
            types = {column.name: column.type for column in table.columns}
            tx.create_table(table.qualified, types, or_replace=True)
        table.rows.clear()
        return [table]

    def expire(self, table: Table) -> list[Table]:
        self.log.append("ours: expire")
        self.lake.expire_snapshots(keep_last=self.random.randint(1, 5))
        return [table]

    def theirs(self, table: Table) -> None:
        kinds: list[tuple[Callable[[Table], None], float]] = [
            (self._insert, 6),
            (self._delete, 4),
            (self._flush, 1.5),
            (self._merge, 1.5),
            (self._expire, 0.7),
        ]
        if not table.wild:  # where the reference itself loses track of bounds
            kinds += [(self._update, 3), (self._rewrite, 1.5), (self._alter, 3)]
        act, _ = self.random.choices(kinds, [weight for _, weight in kinds])[0]
        act(table)
        self._heal(table)

    def _heal(self, table: Table) -> None:
        """Append to the table where the reference left a row without bounds over values.

        It does so when one of several files of a statement holds only NULLs, and its next insertion would
        then claim bounds that are too narrow. Our append must see that nothing is known.
        """
        if any(_claims_nothing(stats, values) for _, stats, values in self._stats(table)):
            self.append(table)
            assert not any(_claims_nothing(stats, values) for _, stats, values in self._stats(table))

    def _insert(self, table: Table) -> None:
        rows = self.values.rows(table, self.random.choice([1, 3, 9, 15, 40]))
        self.running.raw.register("incoming", arrow_of(table, rows))
        self.sql(f"INSERT INTO {table.sql} BY NAME FROM incoming -- {len(rows)} rows")
        _add(table, rows)

    def _delete(self, table: Table) -> None:
        gone = self.some(table, self.random.choice([1, 4, 30, 1000 if self.random.random() < 0.2 else 2]))
        self.sql(f"DELETE FROM {table.sql} WHERE id IN ({', '.join(map(str, gone)) or 'NULL'})")
        for row_id in gone:
            del table.rows[row_id]

    def _update(self, table: Table) -> None:
        changed = self.some(table, self.random.choice([1, 4, 30]))
        column = self.random.choice(table.columns[1:])
        (source,) = self.values.rows(table, 1)
        self.running.raw.register("incoming", arrow_of(table, [source]))
        self.sql(
            f"UPDATE {table.sql} SET {column.sql} = (SELECT {column.sql} FROM incoming) "
            f"WHERE id IN ({', '.join(map(str, changed)) or 'NULL'}) -- {source[column]!r}"
        )
        for row_id in changed:
            table.rows[row_id][column] = source[column]

    def _flush(self, table: Table) -> None:
        if self._has_ended_inlined_rows(table):
            return  # of a partitioned table: now and then the reference brings one of them back to life
        self._call("ducklake_flush_inlined_data", table)

    def _has_ended_inlined_rows(self, table: Table) -> bool:
        dump = dump_catalog(self.catalog)
        prefix = f"ducklake_inlined_data_{self._id(table, dump)}_"
        inlined = [row for name, rows in dump.items() if name.startswith(prefix) for row in rows]
        return any(row["end_snapshot"] is not None for row in inlined) and (
            self.lake.table_snapshot(table.qualified).partition_spec is not None
        )

    def _merge(self, table: Table) -> None:
        self._call("ducklake_merge_adjacent_files", table)

    def _rewrite(self, table: Table) -> None:
        if not self._has_ended_inlined_rows(table):
            self._flush(table)  # it looks for today's columns in inlined tables of older layouts
            self._call("ducklake_rewrite_data_files", table, ", delete_threshold => 0")

    def _call(self, function: str, table: Table, more: str = "") -> None:
        if function == "ducklake_flush_inlined_data":
            given = f"schema_name => '{table.schema}', table_name => '{table.name}'"
        else:
            given = f"'{table.name}', schema => '{table.schema}'"
        self.sql(f"CALL {function}('lake', {given}{more})")

    def _expire(self, _: Table) -> None:
        ids = [row[0] for row in self.running.sql("SELECT snapshot_id FROM lake.snapshots()")]
        some = ids[: -self.random.randint(1, 4)] or [0]  # an empty list is a syntax error to the reference
        self.sql(f"CALL ducklake_expire_snapshots('lake', versions => {some})")
        self.sql("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")

    def _alter(self, table: Table) -> None:
        self.random.choice([self._add_column, self._drop, self._rename, self._widen, self._partition])(table)

    def _add_column(self, table: Table) -> None:
        column = Column(self.name(), self.random.choice(["int32", "varchar", "date"]))
        default = self.random.choice(
            [None, {"int32": 7, "varchar": "it's", "date": date(2020, 2, 29)}[column.type]]
        )
        literal = "NULL" if default is None else "'" + str(default).replace("'", "''") + "'"
        self.sql(
            f"ALTER TABLE {table.sql} ADD COLUMN {column.sql} "
            f"{DUCKDB.get(column.type, column.type)} DEFAULT {literal}"
        )
        table.columns.append(column)
        for row in table.rows.values():
            row[column] = default

    def _drop(self, table: Table) -> None:
        if droppable := [column for column in table.columns if not column.stays]:
            column = self.random.choice(droppable)
            self.sql(f"ALTER TABLE {table.sql} DROP COLUMN {column.sql}")
            table.columns.remove(column)

    def _rename(self, table: Table) -> None:
        if candidates := [column for column in table.columns if column.name not in ("id", "k", "t")]:
            column = self.random.choice(candidates)
            new = self.name()
            self.sql(
                f'ALTER TABLE {table.sql} RENAME COLUMN {column.sql} TO "{new.replace(chr(34), 2 * chr(34))}"'
            )
            column.name = new

    def _widen(self, table: Table) -> None:
        if candidates := [column for column in table.columns if column.type in WIDER]:
            column = self.random.choice(candidates)
            column.type = WIDER[column.type]
            self.sql(
                f"ALTER TABLE {table.sql} ALTER COLUMN {column.sql} "
                f"SET DATA TYPE {DUCKDB.get(column.type, column.type)}"
            )
            self.append(table)  # till then a running reference keeps bounds of the old type, and loses rows

    def _partition(self, table: Table) -> None:
        # No bucket: the reference then misses rows of older files in `WHERE id = …`.
        keys = self.random.choice(["k", "year(t)", "k, month(t)", None])
        self.sql(
            f"ALTER TABLE {table.sql} " + (f"SET PARTITIONED BY ({keys})" if keys else "RESET PARTITIONED BY")
        )

    def check(self, tables: list[Table], reader: DuckLakeConnection) -> None:
        dump = dump_catalog(self.catalog)
        for table in tables:
            self._check_rows(table, reader, dump)
            self._check_filters(table, reader)
            self._check_table_stats(table)
            self._check_our_reading(table)
        self._check_file_stats(dump)

    def _check_rows(self, table: Table, reader: DuckLakeConnection, dump: Dump) -> None:
        row_ids = [row_id for (row_id,) in reader.sql(f"SELECT rowid FROM {table.sql}")]
        rows = reader.sql(f"FROM {table.sql}")

        assert sorted_rows(rows) == table.content(), table.sql
        assert [row_id for row_id, count in Counter(row_ids).items() if count > 1] == []
        next_row_id = _of_table(dump, "ducklake_table_stats", self._id(table, dump), "next_row_id")
        assert max(row_ids, default=-1) < max(next_row_id, default=0)

    def _check_our_reading(self, table: Table) -> None:
        rows = self.lake.read_arrow(table.qualified).to_pylist()
        assert sorted_rows(tuple(row.values()) for row in rows) == table.content()

    def _check_filters(self, table: Table, reader: DuckLakeConnection) -> None:
        for column in table.columns:
            present = [row[column] for row in table.rows.values()] or [None]
            extremes = sorted((value for value in present if value is not None), key=order)
            picked = self.random.choice([*extremes[:1], *extremes[-1:], self.random.choice(present)])
            if isinstance(picked, str) and "\0" in picked:
                continue  # the reference cannot send it to the catalog
            operator = "IS NULL" if picked is None else self.random.choice(["=", "<", ">="])
            reader.raw.execute(
                f"SELECT id FROM {table.sql} WHERE {column.sql} {operator} "
                + ("" if picked is None else "?"),
                [] if picked is None else [picked],
            )
            found = sorted(row_id for (row_id,) in reader.raw.fetchall())
            assert found == table.matching(column, operator, picked), (
                table.sql,
                column.name,
                operator,
                picked,
            )

    def _id(self, table: Table, dump: Dump) -> int:
        schemas = {row["schema_id"] for row in dump["ducklake_schema"] if row["schema_name"] == table.schema}
        (found,) = (
            row["table_id"]
            for row in dump["ducklake_table"]
            if row["table_name"] == table.name and row["schema_id"] in schemas and row["end_snapshot"] is None
        )
        return found

    def _stats(self, table: Table) -> list[tuple[Column, dict[str, Any], list[Any]]]:
        """Return the rows of the table's column statistics with the live values that they speak of."""
        dump = dump_catalog(self.catalog)
        table_id = self._id(table, dump)
        columns = {
            row["column_id"]: table.column(row["column_name"])
            for row in dump["ducklake_column"]
            if row["table_id"] == table_id and row["end_snapshot"] is None
        }
        return [
            (columns[row["column_id"]], row, [one[columns[row["column_id"]]] for one in table.rows.values()])
            for row in dump["ducklake_table_column_stats"]
            if row["table_id"] == table_id and row["column_id"] in columns
        ]

    def _check_table_stats(self, table: Table) -> None:
        for column, stats, values in self._stats(table):
            assert not _claims_nothing(stats, values), (table.sql, column.name, stats)
            assert _covers(stats, values, column.type), (table.sql, column.name, stats, values)

    def _check_file_stats(self, dump: Dump) -> None:
        """Recompute the statistics of the files that the newest snapshot added, where it is ours."""
        newest = max(dump["ducklake_snapshot"], key=lambda row: row["snapshot_id"])["snapshot_id"]
        (changes,) = (row for row in dump["ducklake_snapshot_changes"] if row["snapshot_id"] == newest)
        if changes["author"] != "us" or not changes["changes_made"].startswith("inserted"):
            return
        for snapshot_table in self.tables:
            live = self.lake.table_snapshot(snapshot_table.qualified, with_files=True)
            for file in live.files or ():
                if file.begin_snapshot == newest:
                    self._check_file(live, file)

    def _check_file(self, live: Any, file: Any) -> None:
        import pyarrow.parquet as pq  # noqa: PLC0415

        rows = pq.read_table(file.path, partitioning=None)
        assert rows.num_rows == file.record_count
        for column in live.schema.columns:
            values = rows.column(column.name).to_pylist()
            stats = file.column_stats[column.id]
            known = [value for value in values if value is not None]
            numbers = [value for value in known if not (isinstance(value, float) and math.isnan(value))]
            assert (stats.value_count, stats.null_count) == (len(known), len(values) - len(known))
            if str(column.type) == "float64":
                assert stats.contains_nan == (len(numbers) < len(known))
            _check_bounds(stats, numbers, str(column.type))


def _check_bounds(stats: Any, values: list[Any], type_: str) -> None:
    for text, exact, sign in ((stats.min_value, min, 1), (stats.max_value, max, -1)):
        if text is None:
            long_or_nul = any(
                isinstance(value, str) and ("\0" in value or len(value) > 100) for value in values
            )
            assert not values or long_or_nul
            continue
        bound, extreme = order(_parsed(text, type_)), order(exact(values, key=order))
        assert bound == extreme or (
            type_ == "varchar" and len(extreme) > 256 and (bound < extreme) == (sign > 0)
        )


def _of_table(dump: Dump, catalog_table: str, table_id: int, column: str) -> list[Any]:
    return [row[column] for row in dump[catalog_table] if row["table_id"] == table_id]


def _claims_nothing(stats: dict[str, Any], values: list[Any]) -> bool:
    """Whether a row without bounds speaks of a column with values."""
    without_bounds = stats["min_value"] is None and stats["max_value"] is None
    return without_bounds and any(value is not None and value == value for value in values)  # noqa: PLR0124 - NaN


def _covers(stats: dict[str, Any], values: list[Any], type_: str) -> bool:
    """Whether a row of the table's statistics allows for all those values."""
    known = [value for value in values if value is not None]
    has_nan = any(isinstance(value, float) and math.isnan(value) for value in known)
    numbers = [order(value) for value in known if not (isinstance(value, float) and math.isnan(value))]
    low, high = (
        None if stats[bound] is None else order(_parsed(stats[bound], type_))
        for bound in ("min_value", "max_value")
    )
    if len(known) < len(values) and stats["contains_null"] in (0, False):
        return False
    if has_nan and stats["contains_nan"] in (0, False) and stats["max_value"] != "nan":
        return False
    if not numbers:
        return True
    return (low is None or low <= min(numbers)) and (high is None or max(numbers) <= high)


def _parsed(text: str, type_: str) -> Any:
    match type_:
        case "int32" | "int64":
            return int(text)
        case "float64":
            return float(text)
        case "varchar":
            return text
        case "date":
            return date.fromisoformat(text)
        case "timestamp":
            return datetime.fromisoformat(text)
        case _:
            return Decimal(text)


def _add(table: Table, rows: list[dict[Column, Any]]) -> None:
    table.rows.update({row[table.columns[0]]: row for row in rows})


def test_a_random_history_of_both_writers_keeps_content_row_ids_and_statistics(catalog, seed, size):
    with ExitStack() as stack:
        lake = stack.enter_context(Lake.create(catalog.sqlalchemy_url, catalog.data_path))
        running = stack.enter_context(open_lake(catalog))
        history = History(catalog, lake, running, seed)
        history.create()
        try:
            for number in range(STEPS[size]):
                tables = history.step()
                history.check(tables, running)
                if number % 5 == 0:
                    with open_lake(catalog) as fresh:
                        history.check(history.tables, fresh)
            assert {one.code for one in lake.verify()} <= REFERENCE_FAULTS
        except BaseException as error:
            error.add_note(f"seed {seed}, after:\n" + "\n".join(history.log))
            raise
