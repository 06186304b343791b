"""Count what goes to PostgreSQL and comes back: BEGIN and ROLLBACK as well as questions."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from psycopg import pq as libpq
from sqlalchemy import event
from sqlalchemy.engine import Engine

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import NotADuckLakeError, TableNotFoundError
from airflow_provider_ducklake.lake.format.snapshots import CommitInfo
from airflow_provider_ducklake.lake.writes.arguments import GivenRows
from airflow_provider_ducklake.lake.writes.insert import Insert
from airflow_provider_ducklake.lake.writes.row_changes import Delete, Merge, Update
from airflow_provider_ducklake.lake.writes.run import run
from airflow_provider_ducklake.lake.writes.verb import Commit, Verb
from tests.concurrency.arrow_jobs import ArrowSubmitter
from tests.interop.lakes import alone

_REQUEST = re.compile(r"^F\t\d+\t(?:Query|Sync)(.*)$", re.MULTILINE)
# What SQLAlchemy asks the first connection of each engine.
_FIRST_ASKED = re.compile(
    r"^[^\n]*pg_catalog\.version.*?standard_conforming_strings\"\n", re.DOTALL | re.MULTILINE
)


@contextmanager
def round_trips(folder: Path) -> Iterator[list[str]]:
    """Yield a list that holds, after the block, what connections opened within it asked, as libpq saw it."""
    requests: list[str] = []
    opened: list[psycopg.Connection] = []
    with (folder / "trace").open("w+", encoding="utf-8") as file:

        def trace(connection: psycopg.Connection, _record: object) -> None:
            connection.pgconn.trace(file.fileno())
            connection.pgconn.set_trace_flags(libpq.Trace.SUPPRESS_TIMESTAMPS)
            opened.append(connection)

        event.listen(Engine, "connect", trace)
        try:
            yield requests
        finally:
            event.remove(Engine, "connect", trace)
            for connection in opened:
                if not connection.closed:
                    connection.pgconn.untrace()
        file.seek(0)
        lines = "\n".join(_REQUEST.findall(file.read())) + "\n"
    requests += _FIRST_ASKED.sub("", lines).splitlines()


WHERE = "i > 10 AND price < 400"


@pytest.fixture
def postgres(new_catalog):
    return new_catalog("postgres")


def _rows(*numbers: int) -> pa.Table:
    prices = pa.array([number / 4 for number in numbers], pa.float64())
    return pa.table({"i": pa.array(numbers, pa.int64()), "price": prices})


def _fill(lake: Lake) -> None:
    alone(lake).create_table("t", {"i": "int64", "price": "float64"}, partition_by=["bucket(2, i)"])
    lake.append_arrow("t", _rows(*range(1000)))


def _fill_the_catalog(lake: Lake) -> None:
    """Leave rows of two layouts, and deletes, in the catalog."""
    lake.append_arrow("t", _rows(1000, 1001))
    alone(lake).delete_rows("t", "i = 12 OR i = 1001")
    alone(lake).add_column("t", "note", "varchar")
    lake.append_arrow("t", _rows(1002).append_column("note", pa.array(["x"])))


@pytest.mark.parametrize("fill", [None, _fill_the_catalog])
def test_a_filtered_read_takes_four_round_trips(postgres, tmp_path, fill):
    with Lake.create(postgres.sqlalchemy_url, postgres.data_path) as lake:
        _fill(lake)
        if fill is not None:
            fill(lake)
    expected = {*range(11, 1000)} if fill is None else ({*range(11, 1003)} - {12, 1001})

    with Lake.connect(postgres.sqlalchemy_url) as lake:
        version = lake.current_snapshot().id
    for at in (None, version):
        with round_trips(tmp_path) as requests, Lake.connect(postgres.sqlalchemy_url) as lake:
            found = lake.read_arrow("t", at=at, filter=WHERE)
        assert {*found["i"].to_pylist()} == expected
        assert len(requests) - OPENING <= 4, requests


OPENING = 2


def test_a_lake_opens_in_two_round_trips(postgres, tmp_path):
    with round_trips(tmp_path) as requests, pytest.raises(NotADuckLakeError):
        Lake.connect(postgres.sqlalchemy_url)
    assert len(requests) <= 2, requests
    Lake.create(postgres.sqlalchemy_url, postgres.data_path).close()

    with round_trips(tmp_path) as requests:
        Lake.connect(postgres.sqlalchemy_url).close()

    assert len(requests) == OPENING, requests


@pytest.mark.parametrize("count", [0, 1, 50])
def test_a_look_for_changes_takes_two_round_trips_whatever_it_finds(postgres, tmp_path, count):
    with Lake.create(postgres.sqlalchemy_url, postgres.data_path) as lake:
        lake.set_option("data_inlining_row_limit", 0)
        _fill(lake)
        since = lake.current_snapshot().id
        for number in range(count):
            alone(lake).delete_rows("t", f"i = {number}")

    with round_trips(tmp_path) as requests, Lake.connect(postgres.sqlalchemy_url) as lake:
        found = lake.reads.possible_changes("t", since, ["delete"])
        assert lake.reads.possible_changes("missing", 0, ["data"]) is None

    assert (found is not None) == bool(count)
    assert len(requests) - OPENING <= 4, requests  # two looks


@pytest.mark.parametrize(
    ("kind", "plain", "with_inlined"), [("sqlite", 14, 17), ("duckdb", 14, 14), ("mariadb", 14, 14)]
)
def test_elsewhere_a_filtered_read_takes_few_statements(new_catalog, kind, plain, with_inlined):
    catalog = new_catalog(kind)
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        _fill(lake)
        assert _statements(lake) <= plain
        if kind == "sqlite":
            _fill_the_catalog(lake)
            assert _statements(lake) <= with_inlined


def _statements(lake: Lake) -> int:
    with statements() as asked:
        lake.read_arrow("t", filter=WHERE)
    return len(asked)


@contextmanager
def statements() -> Iterator[list[str]]:
    """Yield a list that holds, after the block, the statements that were sent within it."""
    asked: list[str] = []

    def note(_connection, _cursor, statement, *_rest) -> None:
        if statement != "PRAGMA schema_version":  # SQLite has read it with the file's header
            asked.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield asked
    finally:
        event.remove(Engine, "before_cursor_execute", note)


# --- writes with a job ---


def _verb(name: str, folder: Path, number: int) -> Verb:
    """Return a verb that inserts a row, or changes one row of a file which has others."""
    rows = {"id": pa.array([number], pa.int64()), "note": ["a"]}
    pq.write_table(pa.table(rows), folder / f"{number}.parquet")
    source = GivenRows(source=str(folder / f"{number}.parquet"))
    match name:
        case "insert":
            return Insert("t", source)
        case "merge":
            return Merge("t", ["id"], source, when_matched=[{"update": "*"}])
        case "delete":
            return Delete("t", f"id = {number}")
        case _:
            return Update("t", {"note": "'a'"}, f"id = {number}")


def _table_with_deletes(url: str, data_path: str, folder: Path, inlining: int) -> None:
    """Make a table of one file that has lost a row, and the provider's own tables."""
    with Lake.create(url, data_path) as lake:
        lake.set_option("data_inlining_row_limit", 0)
        alone(lake).create_table("t", {"id": "int64", "note": "varchar"})
        lake.append_arrow("t", pa.table({"id": range(100), "note": ["a"] * 100}))
        lake.set_option("data_inlining_row_limit", inlining)
        run(_verb("delete", folder, 0), lake, ArrowSubmitter(), Commit(CommitInfo()))


@pytest.mark.parametrize(
    ("name", "inlining", "count"),
    [
        *(("insert", 0, 6), ("merge", 0, 9), ("delete", 0, 9), ("update", 0, 9)),
        *(("merge", 10, 15), ("delete", 10, 15)),
    ],
)
def test_a_write_with_a_job_takes_few_round_trips(postgres, tmp_path, name, inlining, count):
    """Two for the plan of an insert, else four; two to register; one for the newest snapshot; two to commit.

    With inlined deletes these are read again, and their catalog table is checked before it is written to.
    """
    _table_with_deletes(postgres.sqlalchemy_url, postgres.data_path, tmp_path, inlining)
    verb = _verb(name, tmp_path, 1)

    with round_trips(tmp_path) as requests, Lake.connect(postgres.sqlalchemy_url) as lake:
        outcome = run(verb, lake, ArrowSubmitter(), Commit(CommitInfo()))

    assert outcome.committed is not None
    assert len(requests) - OPENING <= count, requests


@pytest.mark.parametrize(("name", "count"), [("insert", 2), ("merge", 4), ("delete", 4), ("update", 4)])
def test_the_plan_of_a_write_loads_its_table_once(postgres, tmp_path, name, count):
    _table_with_deletes(postgres.sqlalchemy_url, postgres.data_path, tmp_path, 0)
    verb = _verb(name, tmp_path, 1)

    with round_trips(tmp_path) as requests, Lake.connect(postgres.sqlalchemy_url) as lake:
        planned = verb.plan(lake, Commit(CommitInfo()), ArrowSubmitter().resolve)

    assert planned.request is not None
    assert len(requests) - OPENING <= count, requests


@pytest.mark.parametrize(("name", "count"), [("insert", 23), ("merge", 35), ("delete", 30), ("update", 35)])
def test_elsewhere_a_write_with_a_job_takes_few_statements(sqlite_catalog, tmp_path, name, count):
    """Of these 3 or 4 are BEGIN, and 3 replace the delete file that the data file has."""
    _table_with_deletes(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path, tmp_path, 0)
    verb = _verb(name, tmp_path, 1)

    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake, statements() as asked:
        outcome = run(verb, lake, ArrowSubmitter(), Commit(CommitInfo()))

    assert outcome.committed is not None
    assert len(asked) <= count, asked


def test_a_read_sees_one_state_of_the_catalog(postgres):
    """A flush between two questions would show its rows twice, or not at all."""
    with (
        Lake.create(postgres.sqlalchemy_url, postgres.data_path) as lake,
        Lake.connect(postgres.sqlalchemy_url) as other,
    ):
        _fill(lake)
        lake.append_arrow("t", _rows(1000, 1001))
        looks = []

        def flush_once(_connection, _cursor, statement, *_rest) -> None:
            if "ducklake_data_file" in statement and not looks:
                looks.append(statement)
                other.flush_inlined_data("t")

        event.listen(lake.opened.catalog.dialect.engine, "before_cursor_execute", flush_once)
        found = lake.read_arrow("t", filter="i >= 1000")

    assert looks
    assert sorted(found["i"].to_pylist()) == [1000, 1001]


def test_the_connection_is_clean_after_a_read_that_failed(postgres):
    with Lake.create(postgres.sqlalchemy_url, postgres.data_path) as lake:
        _fill(lake)
        for _ in range(3):
            with pytest.raises(TableNotFoundError):
                lake.read_arrow("missing")
        lake.append_arrow("t", _rows(1000))

        assert lake.row_count("t") == 1001
