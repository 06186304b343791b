"""Reads take few round trips to PostgreSQL, and few statements elsewhere, whatever they find."""

import pyarrow as pa
import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import NotADuckLakeError, TableNotFoundError
from tests.catalogs.round_trips import round_trips

WHERE = "i > 10 AND price < 400"


@pytest.fixture
def postgres(new_catalog):
    return new_catalog("postgres")


def _rows(*numbers: int) -> pa.Table:
    prices = pa.array([number / 4 for number in numbers], pa.float64())
    return pa.table({"i": pa.array(numbers, pa.int64()), "price": prices})


def _fill(lake: Lake) -> None:
    with lake.transaction() as tx:
        tx.create_table("t", {"i": "int64", "price": "float64"}, partition_by=["bucket(2, i)"])
    lake.append_arrow("t", _rows(*range(1000)))


def _fill_the_catalog(lake: Lake) -> None:
    """Leave rows of two layouts, and deletes, in the catalog."""
    lake.append_arrow("t", _rows(1000, 1001))
    with lake.transaction() as tx:
        tx.delete_rows("t", "i = 12 OR i = 1001")
    with lake.transaction() as tx:
        tx.add_column("t", "note", "varchar")
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
            with lake.transaction() as tx:
                tx.delete_rows("t", f"i = {number}")

    with round_trips(tmp_path) as requests, Lake.connect(postgres.sqlalchemy_url) as lake:
        found = lake.table_changes("t", since, ["delete"])
        assert lake.table_changes("missing", 0, ["data"]) is None

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
    asked: list[str] = []

    def note(_connection, _cursor, statement, *_rest) -> None:
        if statement != "PRAGMA schema_version":  # SQLite has read it with the file's header
            asked.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        lake.read_arrow("t", filter=WHERE)
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    return len(asked)


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

        event.listen(lake._lake.catalog.dialect.engine, "before_cursor_execute", flush_once)
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
