"""A merge conflicts with rows that came or went since it read them, as its source or to insert others."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.catalog.lake_reads import LakeReads
from airflow_provider_ducklake.lake.errors import TransactionConflictError
from airflow_provider_ducklake.lake.sql.spark.parse import parse_spark_sql
from airflow_provider_ducklake.lake.writes.sql_plan import Reads, find_target, rows_read, steps_of
from airflow_provider_ducklake.operators.merge import DuckLakeSparkMergeOperator
from tests.concurrency.verbs import PausingLake, operate

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64())])
SOURCES = {"the target itself": "S.T", "a view over a view of it": "s.w"}


@pytest.fixture
def lake(sqlite_catalog) -> Iterator[PausingLake]:
    with PausingLake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake:
        lake.set_option("data_inlining_row_limit", 0)
        with lake.transaction() as tx:
            tx.create_schema("s")
            for name in ("t", "o"):
                tx.create_table(f"s.{name}", SCHEMA)
            tx.create_view("s.v", "SELECT id, n FROM t", dialect="spark")
            tx.create_view("s.w", "SELECT id, n FROM (SELECT * FROM s.v)", dialect="spark")
        add(lake, "t", 1, 10)
        add(lake, "t", 2, 20)
        add(lake, "o", 2, 20)
        yield lake


def add(lake: PausingLake, table: str, id_: int, n: int) -> None:
    lake.append_arrow(f"s.{table}", pa.table({"id": [id_], "n": [n]}, SCHEMA))


def delete(lake: PausingLake, table: str) -> None:
    with lake.transaction() as tx:
        tx.delete_rows(f"s.{table}", "id = 2")


def merge(lake: PausingLake, source: str) -> None:
    """Delete row 1 because there is a row 2."""
    on = "target.id = source.id - 1 AND target.id = 1"
    operator = DuckLakeSparkMergeOperator(
        task_id="m", table="s.t", source_table=source, on=on, when_matched=[{"delete": True}]
    )
    operate(operator, lake)


def rows(lake: PausingLake) -> list[tuple[int, int]]:
    return sorted(zip(*lake.read_arrow("s.t").to_pydict().values(), strict=True))


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
@pytest.mark.parametrize(
    "meanwhile",
    [lambda lake: delete(lake, "t"), lambda lake: add(lake, "t", 2, 30)],
    ids=["deleted", "added"],
)
def test_rows_of_the_target_that_the_source_read_are_a_conflict(lake, source, meanwhile):
    lake.meanwhile = lambda: (meanwhile(lake), seen.extend(rows(lake)))
    seen: list[tuple[int, int]] = []

    with pytest.raises(TransactionConflictError, match=r"s\.t"):
        merge(lake, source)

    assert rows(lake) == seen


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_rows_of_other_tables_are_none(lake, source):
    lake.meanwhile = lambda: delete(lake, "o")

    merge(lake, source)

    assert rows(lake) == [(2, 20)]


def test_a_source_that_does_not_read_the_target_leaves_its_other_rows_to_others(lake):
    lake.meanwhile = lambda: delete(lake, "t")

    merge(lake, "s.o")

    assert rows(lake) == []


@pytest.mark.parametrize("inserts", [True, False])
def test_a_row_that_went_is_a_conflict_of_a_merge_that_would_have_inserted_it(lake, inserts):
    """The merge inserts no row, because row 2 was there, which it left alone."""
    add(lake, "o", 1, 17)
    new = [{"insert": "*"}] if inserts else []
    newer = {"condition": "source.n > target.n", "update": "*"}
    operator = DuckLakeSparkMergeOperator(
        task_id="m", table="s.t", source_table="s.o", on=["id"], when_matched=[newer], when_not_matched=new
    )
    lake.meanwhile = lambda: delete(lake, "t")

    if inserts:
        with pytest.raises(TransactionConflictError, match="deleted rows of data file"):
            operate(operator, lake)
    else:
        operate(operator, lake)

    assert rows(lake) == [(1, 10 if inserts else 17)]


# A query that reads a table which it writes notices rows that come, also while it is planned.


JOB = "01a214b0-005d-7a75-9966-2ec304b4ac3e"
ROWS = pa.table({"id": [1]})


class BusyReads(LakeReads):
    """Reads of a lake to which another client commits while the table that a query makes is looked for."""

    def new_table(self, name, uuid=None):
        Lake(self._lake).append_arrow("main.other", ROWS)
        return super().new_table(name, uuid)


class BusyLake(Lake):
    def __init__(self, lake, committer=None):
        super().__init__(lake, committer)
        self.reads = BusyReads(lake)


@pytest.mark.parametrize(
    "text",
    [
        "CREATE OR REPLACE TABLE main.t AS SELECT * FROM main.t",
        "CREATE TABLE main.new AS SELECT 1 AS id; INSERT INTO main.t SELECT max(id) + 1 FROM main.t",
    ],
)
def test_a_commit_while_a_query_is_planned_hides_none_of_the_tables_it_reads(sqlite_catalog, text):
    with (
        Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as made,
        made.transaction() as tx,
    ):
        tx.create_table("main.t", {"id": "int64"})
        tx.create_table("main.other", {"id": "int64"})
    with BusyLake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        statements, head = parse_spark_sql(text, (), "main"), lake.current_snapshot()
        targets = [find_target(lake, one.table, one.mode, head, JOB) for one in statements]
        reads = Reads(lake, JOB, head, targets=frozenset(one.name.folded for one in targets))
        steps_of(statements, reads, {one.name.folded: one for one in targets}, "job")

        (read,) = rows_read(targets, reads, head.id)

        assert str(read.name) == "main.t"
        assert list(rows_read(targets, reads, lake.current_snapshot().id)) == []
