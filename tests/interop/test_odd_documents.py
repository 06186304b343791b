"""Whatever value a document of a job holds in place of another: the lake stays readable, for DuckDB, too."""

import json
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import DuckLakeError, UntrustedValueError
from airflow_provider_ducklake.lake.format.snapshots import CommitInfo, CommitKey
from airflow_provider_ducklake.lake.spark.job import io as job_io
from airflow_provider_ducklake.lake.writes.staged import commit_writes, discard, read_staged
from airflow_provider_ducklake.lake.writes.verb import Commit
from tests.interop.staging import stage
from tests.reference.catalogs import CatalogDatabase, file_catalog
from tests.reference.duckdb_lake import open_lake

Place = tuple[str | int, ...]
COUNT = {"ci": 60, "full": 600}
ODD: tuple[Any, ...] = (
    *(None, [], {}, [[]], {"a": 1}, [None], ["x"] * 5, True, False),
    *(0, -1, 1, 2**63, -(2**70), 10**400, 1.5, 1e308, float("nan"), float("inf")),
    *("", "x", "\ud800", "a\x00b", "9" * 5000, "5_0", " 5", "\u0663", "NaN", "2020-01-01"),
    *("varchar", "struct", "decimal(99,1)", "interval"),
)
DOCUMENTS = ("_DONE", "stage.json", "part-00000.json")
ROWS = pa.table({"id": pa.array([1, 2], pa.int64()), "price": pa.array([1.5, None]), "day": ["a", "b"]})


def paths(document: Any, above: Place = ()) -> Iterator[Place]:
    """Yield where each value of a document stands."""
    if above:
        yield above
    items = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in items:
        if isinstance(value, dict | list):
            yield from paths(value, (*above, key))
        else:
            yield (*above, key)


def replaced(document: Any, path: Place, value: Any) -> Any:
    """Return a document with another value in one place; `...` takes it out."""
    found = document
    for key in path[:-1]:
        found = found[key]
    if value is ...:
        del found[path[-1]]
    else:
        found[path[-1]] = value
    return document


@pytest.fixture
def lakes(tmp_path: Path) -> Callable[[], CatalogDatabase]:
    """Return a lake with two tables, the same each time."""
    catalog = file_catalog("sqlite", tmp_path / "area")
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake, lake.transaction() as tx:
        tx.create_table("t", {"id": "int64", "price": "float64", "day": "varchar"})
        tx.create_table("innocent", {"id": "int64"})
        tx.append_arrow("innocent", pa.table({"id": pa.array([7], pa.int64())}))
    shutil.copytree(tmp_path / "area", tmp_path / "first")

    def fresh() -> CatalogDatabase:
        shutil.rmtree(tmp_path / "area")
        shutil.copytree(tmp_path / "first", tmp_path / "area")
        return catalog

    return fresh


def commits(lake: Lake, uri: str) -> bool:
    """Whether a staged write is committed; only an error of ours may come of it."""
    try:
        staged = read_staged(lake, [uri])
        keyed = lake.writes.keyed_commit(CommitKey((uri,)))
        return commit_writes(lake, staged, Commit(CommitInfo("me", "odd"), keyed)) is not None
    except DuckLakeError:
        return False


def try_one(catalog: CatalogDatabase, draw: random.Random) -> bool:
    """Stage a write, change a value in one of its documents, commit it; return whether the catalog lies."""
    creates = draw.random() < 0.4
    table = "made" if creates else "t"
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        staged = stage(lake, f"main.{table}", ROWS, creates=creates)
        uri, file = job_io.stage_uri(staged.directory), Path(staged.directory) / draw.choice(DOCUMENTS)
        document = json.loads(file.read_text())
        path, value = draw.choice(list(paths(document))), draw.choice([*ODD, ...])
        file.write_text(json.dumps(replaced(document, path, value)))
        what = f"{file.name} {path} = {value!r:.40}"
        if not commits(lake, uri):
            with suppress(DuckLakeError):
                discard(lake, [uri])
            table = "t"
        lies = lake.verify()  # of what its writer might have written into the file itself
        ours = None if lies else lake.read_arrow(table).num_rows
    with open_lake(catalog) as reference:
        assert reference.sql("SELECT id FROM innocent") == [(7,)], what
        assert ours is None or len(reference.sql(f"SELECT * FROM {table}")) == ours, what
    return bool(lies)


def test_no_odd_value_in_a_document_makes_a_lake_unreadable(lakes, seed, size):
    draw = random.Random(f"odd documents {seed}")
    lies = sum(try_one(lakes(), draw) for _ in range(COUNT[size]))
    assert lies < COUNT[size] / 10


@pytest.mark.parametrize("bound", [3, 4])
def test_a_bound_that_is_no_value_of_its_type_is_refused(lakes, bound):
    with Lake.connect(lakes().sqlalchemy_url) as lake:
        staged = stage(lake, "main.t", ROWS)
        file = Path(staged.directory) / DOCUMENTS[-1]
        document = json.loads(file.read_text())
        path = ("data_files", 0, "column_stats", 0, bound)
        file.write_text(json.dumps(replaced(document, path, "2O")))

        with pytest.raises(UntrustedValueError, match="'2O', which is not a valid int64"):
            read_staged(lake, [job_io.stage_uri(staged.directory)])
