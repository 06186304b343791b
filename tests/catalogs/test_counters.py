"""A counter that is behind what the catalog holds gives out no number twice: nothing is committed."""

import time
from collections.abc import Callable

import pyarrow as pa
import pytest
from sqlalchemy import create_engine, text

from airflow_provider_ducklake.lake.catalog.database.connect import parse_url
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import CounterBehindError
from airflow_provider_ducklake.lake.planning.upkeep.findings import FindingCode
from tests.interop.jobs import merge_adjacent

pytestmark = pytest.mark.every_catalog
HISTORY = {FindingCode.COUNTER_FELL, FindingCode.SCHEMA_VERSION_STOOD}  # of the snapshot that we spoilt
ROWS = pa.table({"i": pa.array(range(50), pa.int64())})


@pytest.fixture
def lake(catalog):
    """A lake with a table of two files, and one that was altered."""
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        with lake.transaction() as tx:
            tx.create_schema("s")
            tx.create_table("s.t", {"i": "int64"})
            tx.create_table("s.altered", {"i": "int64"})
        for _ in range(2):
            lake.append_arrow("s.t", ROWS)
        alter(lake)
        yield lake


def create(lake: Lake) -> None:
    with lake.transaction() as tx:
        tx.create_table("s.u", {"j": "int64"})


def create_schema(lake: Lake) -> None:
    with lake.transaction() as tx:
        tx.create_schema("another")


def append(lake: Lake) -> None:
    lake.append_arrow("s.t", ROWS)


def delete(lake: Lake) -> None:
    with lake.transaction() as tx:
        tx.delete_rows("s.t", "i = 7")


def compact(lake: Lake) -> None:
    merge_adjacent(lake, "s.t")


def alter(lake: Lake) -> None:
    with lake.transaction() as tx:
        tx.add_column("s.altered", f"c{lake.current_snapshot().id}", "int64")


VERBS = {
    "next_catalog_id": [create, create_schema],
    "next_file_id": [append, delete, compact, create],
    "schema_version": [create, alter, create_schema],
}


def set_back(lake: Lake, url: str, counter: str, by: int) -> None:
    lake.close()
    engine = create_engine(parse_url(url))
    with engine.begin() as connection:
        newest = "(SELECT * FROM (SELECT max(snapshot_id) FROM ducklake_snapshot) AS newest)"
        least = f"CASE WHEN {counter} > {by} THEN {counter} - {by} ELSE 0 END"
        connection.execute(
            text(f"UPDATE ducklake_snapshot SET {counter} = {least} WHERE snapshot_id = {newest}")
        )
    engine.dispose()


@pytest.mark.parametrize(("counter", "verb"), [(name, verb) for name in VERBS for verb in VERBS[name]])
@pytest.mark.parametrize("by", [1, 1000])
def test_nothing_is_committed_on_a_counter_that_is_behind(
    catalog, lake, counter, verb: Callable[[Lake], None], by
):
    set_back(lake, catalog.sqlalchemy_url, counter, by)

    with Lake.connect(catalog.sqlalchemy_url) as again:
        before, started = again.current_snapshot(), time.monotonic()
        with pytest.raises(CounterBehindError, match=f"has {counter} .*Verify the lake"):
            verb(again)
        assert time.monotonic() - started < 60
        assert again.current_snapshot() == before
        found = [one for one in again.verify() if one.code is FindingCode.COUNTER_BEHIND]
        again.repair(found)
        verb(again)
        assert {one.code for one in again.verify()} <= HISTORY
