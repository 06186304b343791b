"""Drawn walks over one lake: the reference's statements and our verbs in turn, all snapshots compared.

A walk repeats by its name, and each of its steps draws for itself, so that a walk can be shortened by hand:
``python -m tests.interop.walks "7 12" --without 3 4 9`` plays walk 12 of seed 7 without some of its steps,
prints what was done, and fails as the test does.
"""

import argparse
import random
import sys
import tempfile
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_ducklake.lake import errors
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.format.names.identifiers import QualifiedName
from airflow_provider_ducklake.lake.planning.upkeep.findings import FindingCode
from airflow_provider_ducklake.lake.storage.rows.inlined_values import inlined_in_schema
from airflow_provider_ducklake.lake.storage.rows.table_reader import ROW_ID, visible_rows
from tests.interop.comparison import differences, multiset, tables_of
from tests.interop.corpus import History, statement
from tests.interop.features import ddl
from tests.interop.jobs import commit_changes, merge_adjacent, rewrite, row_changes
from tests.interop.lakes import alone
from tests.reference import ducklakepy_lake
from tests.reference.catalogs import CatalogDatabase, file_catalog
from tests.reference.duckdb_lake import open_lake
from tests.reference.lent import CannotLendError
from tests.reference.next.process import OracleError

STEPS, TRIES = 22, 5
VERSIONS = ("1.0", "1.1", "1.0 to 1.1")
# t2 has a column of variants, which no copy for DuckDB of a lake of 1.1 has both inlined and in files.
TABLES = {
    ("1.0", False): ("t0", "t1", "t2"),
    ("1.0", True): ("t0", "t1", "t3"),
    ("1.1", False): ("t0", "t1", "t3"),
}
ALTERATIONS = (
    *("add column", "drop column", "rename column", "add field", "drop field", "widen", "widen"),
    *("partition", "unpartition", "sort", "recreate"),
)
# What a verb says of a table or a snapshot that is not there, or of what it does not do: no step then.
REFUSALS = (
    errors.AlreadyExistsError,
    errors.InvalidInputError,
    errors.NotFoundError,
    errors.UnsupportedFeatureError,
)
# What verify() may find, and whose it is.
THEIRS = {
    FindingCode.TABLE_STATS_NARROW: "DuckDB's: its rewrites and NULL-only files make bounds too narrow",
    FindingCode.TWO_DELETE_FILES: "DuckDB's: it flushes into a second delete file",
    FindingCode.INLINED_COLUMNS_DIFFER: (
        "everybody's: a table altered while data_inlining_row_limit is 0 keeps its table for inlined rows"
    ),
}

Seen = dict[tuple[int, QualifiedName], list[tuple[str, ...]]]
Step = Callable[["Walk", str], None]


@dataclass
class Walk:
    """One lake, what was done to it, and what each snapshot showed when it was the newest."""

    catalog: CatalogDatabase
    name: str
    folder: Path
    counts: Counter[str] = field(default_factory=Counter)
    log: list[str] = field(default_factory=list)
    seen: Seen = field(default_factory=dict)
    is_migrated: bool = False

    def play(self, without: Collection[int] = ()) -> None:
        """Take all steps but some, and fail if a snapshot is not what it was, or is read otherwise."""
        self.draw = random.Random(self.name)
        migrates_at = self.draw.randrange(8, 16) if self.is_migrated else None
        self.history = History(
            self.draw, Counter(), tables=TABLES[self.catalog.spec_version, self.is_migrated]
        )
        with open_lake(self.catalog) as reference:
            self.history.play(reference, 0)
            for table in self.history.tables:
                reference.sql(statement("insert", self.draw, table))
        for number in range(STEPS):
            self.draw = self.history.random = random.Random(f"{self.name} {number}")
            if number == migrates_at:
                self._migrate()
            if number not in without:
                self._step(number)
        self.check()

    def _migrate(self) -> None:
        with self.open() as lake:
            lake.migrate("1.1", backup=False)
        self.catalog = replace(self.catalog, spec_version="1.1")
        self.log.append("-- migrated to 1.1")

    def open(self) -> Lake:
        """Open the lake: for one step, as the reference's copy of SQLite is in this process as well."""
        return Lake.connect(self.catalog.sqlalchemy_url, foreign_files=True)

    def _step(self, number: int) -> None:
        if self.draw.random() < 0.5:
            self._theirs(number)
        else:
            any(self._ours(number) for _ in range(TRIES))
        with self.open() as lake:
            self.newest = int(lake.current_snapshot().id)
            for name in lake.tables():
                self.seen.setdefault((self.newest, name), multiset(lake.read_arrow(name)))

    def _theirs(self, number: int) -> None:
        before = len(self.history.statements)
        try:
            with open_lake(self.catalog) as reference:
                for _ in range(TRIES):
                    if self.draw.random() < 0.2:
                        self._more_of_theirs(reference.sql)
                    else:
                        self.history.play_on(reference, 1)
                    if len(self.history.statements) > before:
                        break
        except CannotLendError:
            self.counts["not lent to DuckDB"] += 1
            return
        self.log += [f"{number:2} DuckDB: {one}" for one in self.history.statements[before:]]
        self.counts["steps of DuckDB"] += len(self.history.statements) > before

    def _more_of_theirs(self, sql: Callable[[str], object]) -> None:
        table = self._table()
        text = self.draw.choice(
            [
                f"COMMENT ON TABLE {table} IS 'c{self.draw.randrange(9)}'",
                f"COMMENT ON COLUMN {table}.s IS 'c{self.draw.randrange(9)}'",
                f"CREATE OR REPLACE VIEW v AS SELECT i, s FROM {table}",
                f"ALTER TABLE {table} ALTER s SET DEFAULT 'd{self.draw.randrange(9)}'",
                f"INSERT INTO {table} (i) VALUES ({self.draw.randrange(200)})",
                "CHECKPOINT lake",
            ]
        )
        try:
            sql(text)
            self.history.statements.append(text)
        except duckdb.Error:
            self.counts["refused by DuckDB"] += 1

    def _table(self) -> str:
        return self.draw.choice(self.history.tables)

    def _ours(self, number: int) -> bool:
        """Do one thing; False: the lake refuses it."""
        name = self.draw.choice(list(OURS))
        table = self._table()
        self.done = name
        try:
            with self.open() as lake:
                self.lake = lake
                OURS[name](self, table)
        except REFUSALS as error:
            self.counts[f"refused: {type(error).__name__}"] += 1
            self.log.append(f"{number:2} ours, refused: {self.done} {table}: {str(error)[:100]}")
            return False
        self.counts[f"ours: {name}"] += 1
        self.log.append(f"{number:2} ours: {self.done} {table}")
        return True

    def check(self) -> None:
        """Compare all living snapshots with what they showed, and with what the reference reads."""
        with open_lake(self.catalog) as reference:
            theirs = list(tables_of(reference))
        with self.open() as lake:
            wrong = [one for one in differences(lake, theirs, with_bounds=False) if one is not None]
            wrong += [*self._changed(lake), *self._other_counts(lake), *self._conditions(lake)]
            wrong += [str(one) for one in lake.verify() if one.code not in THEIRS]
        self.counts["tables at a snapshot"] += sum(len(tables) for _, tables in theirs)
        self.counts["of them not read by DuckDB"] += sum(
            one is None for _, tables in theirs for one in tables.values()
        )
        assert not wrong, "\n".join(wrong[:5])

    def _changed(self, lake: Lake) -> Iterator[str]:
        for snapshot in lake.snapshots():
            for name in lake.tables(at=snapshot.id):
                before = self.seen.get((snapshot.id, name))
                if before is not None and multiset(lake.read_arrow(name, at=snapshot.id)) != before:
                    yield f"{name} at {snapshot.id} had {len(before)} rows at first: {before[:3]}"

    def _conditions(self, lake: Lake) -> Iterator[str]:
        """Yield the conditions by which a table shows other rows than those of all that meet them."""
        for name in lake.tables():
            rows = lake.read_arrow(name).select(["i", "s"])
            for where in ("i < 60", "i = 7", "s = 's1'", "s IS NULL", "i > 100 AND s <> 's2'"):
                found = lake.read_arrow(name, filter=where).select(["i", "s"])
                wanted = duckdb.from_arrow(rows).filter(where).to_arrow_table()
                if multiset(found) != multiset(wanted.cast(found.schema)):
                    yield f"{name} where {where}: {found.num_rows} rows, not {wanted.num_rows}"

    def _other_counts(self, lake: Lake) -> Iterator[str]:
        """Yield the tables of which ducklakepy counts other rows, at 1.1."""
        if self.catalog.spec_version != "1.1" or self.catalog.is_encrypted:
            return
        with ducklakepy_lake.open_lake(self.catalog) as theirs:
            for snapshot in lake.snapshots():
                for name in lake.tables(at=snapshot.id):
                    try:
                        count = theirs.count(name.parts, snapshot.id)
                    except OracleError:
                        self.counts["not counted by ducklakepy"] += 1
                        continue
                    self.counts["counted by ducklakepy"] += 1
                    if count != (ours := lake.row_count(name, at=snapshot.id)):
                        yield f"{name} at {snapshot.id}: {ours} rows, {count} by ducklakepy"

    # Our steps

    def _alter(self, table: str) -> None:
        text = statement(self.draw.choice(ALTERATIONS), self.draw, table)
        self.done = text
        for one in text.split("; "):
            ddl(self.lake, one)

    def _new_rows(self, table: str) -> pa.Table:
        """Return rows that the table has, and some with values for what it has been widened to."""
        rows = self.lake.read_arrow(table)
        start, count = self.draw.randrange(200), self.draw.choice([1, 3, 8, 30])
        rows = rows.slice(0, count)
        if rows.num_rows < count:
            more = {one.name: self._column(one, start, count) for one in rows.schema}
            rows = pa.concat_tables([rows, pa.table(more, schema=rows.schema)])
        return rows

    def _column(self, column: pa.Field, start: int, count: int) -> pa.Array:
        if column.type == pa.int64():
            return pa.array([2**62 + start] * count, column.type)
        if column.type == pa.int32():
            return pa.array(range(start, start + count), column.type)
        if column.name == "s":
            return pa.array([f"s{one % 5}" for one in range(count)], column.type)
        return pa.nulls(count, column.type)

    def _append(self, table: str) -> None:
        self.lake.append_arrow(table, self._new_rows(table))

    def _overwrite(self, table: str) -> None:
        rows = self._new_rows(table)
        with self.lake.transaction() as tx:
            tx.truncate(table)
            tx.append_arrow(table, rows)

    def _delete(self, table: str) -> None:
        first = self.draw.randrange(200)
        where = self.draw.choice([f"i BETWEEN {first} AND {first + 30}", f"i < {first}", "s = 's1'", "true"])
        self.done = f"delete {where} from"
        alone(self.lake).delete_rows(table, where)

    def _update(self, table: str) -> None:
        """Change some rows of a file, or of those in the catalog."""
        plan, snapshot = self.lake.scan(table), self.lake.table_snapshot(table, with_files=True)
        file = self.draw.choice([*plan.files, None] if plan.inlined_rows else list(plan.files) or [None])
        deleted, inlined = {}, []
        if file is not None:
            rows = visible_rows(plan, file, self.lake.locate, numbered=True).slice(0, 5)
            *_, row_ids, places = rows.columns
            rows, deleted = rows.select(snapshot.schema.names), {file.id: places.to_pylist()}
        elif plan.inlined_rows:
            part = self.draw.choice(plan.inlined_rows)
            rows = inlined_in_schema([part], snapshot.schema).slice(0, 5)
            inlined = list(part.row_ids)[:5]
            row_ids = pa.array(inlined, pa.int64())
        else:
            raise errors.InvalidInputError("no rows")
        if not rows.num_rows:
            raise errors.InvalidInputError("no rows")
        place = rows.column_names.index("s")
        rows = rows.set_column(place, "s", pa.array(["w"] * rows.num_rows, rows.schema.field(place).type))
        rows = rows.append_column(ROW_ID.name, row_ids)
        commit_changes(
            self.lake, snapshot, row_changes(self.lake, snapshot, deleted, inlined=inlined, updated=rows)
        )

    def _restore(self, table: str) -> None:
        at = self.draw.choice(self.lake.snapshots()).id
        self.done = f"restore to {at}"
        self.lake.restore(table if self.draw.random() < 0.9 else None, at=at)

    def _flush(self, table: str) -> None:
        self.lake.flush_inlined_data(table if self.draw.random() < 0.5 else None)

    def _tag(self, _table: str) -> None:
        at = self.draw.choice(self.lake.snapshots()).id
        self.lake.tag(f"tag{self.draw.randrange(4)}", at, replace=True)

    def _expire(self, _table: str) -> None:
        ids = [one.id for one in self.lake.snapshots()][:-1]
        gone = self.draw.sample(ids, min(len(ids), self.draw.randrange(1, 6)))
        self.done = f"expire {sorted(gone)}"
        self.lake.expire_snapshots(snapshots=gone)
        if self.draw.random() < 0.5:
            self.lake.cleanup_old_files(older_than=timedelta(0))

    def _add_file(self, table: str) -> None:
        path = self.folder / f"{uuid.uuid4()}.parquet"
        rows = self.lake.read_arrow(table)
        names = [one for one in ("i", "s") if one in rows.column_names]
        start = self.draw.randrange(200)
        made = {name: self._column(rows.schema.field(name), start, 12) for name in names}
        pq.write_table(pa.table(made), path)
        alone(self.lake).add_data_files(table, [str(path)], allow_missing=True)

    def _define(self, table: str) -> None:
        text = self.draw.choice(
            [
                f"COMMENT ON TABLE {table} IS 'o{self.draw.randrange(9)}'",
                f"COMMENT ON COLUMN {table}.s IS 'o{self.draw.randrange(9)}'",
                f"CREATE OR REPLACE VIEW w AS SELECT i FROM {table}",
                f"ALTER TABLE {table} ALTER COLUMN s SET DEFAULT 'o{self.draw.randrange(9)}'",
                f"ALTER TABLE {table} ALTER COLUMN s DROP DEFAULT",
            ]
        )
        self.done = text
        ddl(self.lake, text)

    def _option(self, table: str) -> None:
        key, value = self.draw.choice(
            [
                ("data_inlining_row_limit", self.draw.choice([0, 3, 10, 50])),
                ("write_deletion_vectors", self.draw.random() < 0.5),
                ("sort_on_insert", self.draw.random() < 0.5),
                ("hive_file_pattern", True),
            ]
        )
        self.done = f"{key} = {value} of"
        self.lake.set_option(key, value, table=table)

    def _merge(self, table: str) -> None:
        merge_adjacent(self.lake, table)

    def _rewrite(self, table: str) -> None:
        rewrite(self.lake, table)


OURS: dict[str, Step] = {
    "alter": Walk._alter,
    "alter again": Walk._alter,
    "append": Walk._append,
    "append again": Walk._append,
    "overwrite": Walk._overwrite,
    "delete": Walk._delete,
    "update": Walk._update,
    "restore": Walk._restore,
    "restore again": Walk._restore,
    "flush": Walk._flush,
    "flush again": Walk._flush,
    "tag": Walk._tag,
    "expire": Walk._expire,
    "add file": Walk._add_file,
    "define": Walk._define,
    "option": Walk._option,
    "merge": Walk._merge,
    "rewrite": Walk._rewrite,
}


def walk(catalog: CatalogDatabase, name: str, number: int, folder: Path, counts: Counter[str]) -> Walk:
    """Return a walk, of which the number says the lake: its version, and whether it is encrypted."""
    version = VERSIONS[number % len(VERSIONS)]
    lake = replace(catalog, spec_version=version[:3], is_encrypted=number // len(VERSIONS) % 2 == 1)
    return Walk(lake, name, folder, counts, is_migrated=" to " in version)


def main() -> None:
    """Play walks by name: `<seed> <number>`, or `<seed> <first>-<last>`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--without", type=int, nargs="*", default=())
    parser.add_argument("--traceback", action="store_true", help="raise the first error")
    chosen = parser.parse_args()
    seed, _, numbers = chosen.name.partition(" ")
    first, _, last = numbers.partition("-")
    counts: Counter[str] = Counter()
    failed = []
    for number in range(int(first), int(last or first) + 1):
        with tempfile.TemporaryDirectory() as folder:
            one = walk(
                file_catalog("sqlite", Path(folder) / "lake"),
                f"{seed} {number}",
                number,
                Path(folder),
                counts,
            )
            try:
                one.play(chosen.without)
                print(f"walk {seed} {number}: alike", flush=True)  # noqa: T201
            except Exception as error:
                failed.append(number)
                found = f"walk {seed} {number}: {type(error).__name__}: {error}"
                print(found, *one.log, sep="\n", flush=True)  # noqa: T201
                if chosen.traceback:
                    raise
    print(f"seed {seed}, walks {numbers}: failed {failed}", *sorted(counts.items()), sep="\n")  # noqa: T201
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
