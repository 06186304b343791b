"""The installed DuckDB, of whichever version, and we: each reads what the other wrote.

``scripts/matrix.py`` runs this file with other versions than the locked one. A DuckDB before 1.5 makes lakes
of DuckLake 0.3: we read them, and migrate them to 1.0, which it then refuses.
"""

from typing import Any

import duckdb
import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from tests.interop.lakes import alone
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake, opens_1_0

CREATE = "CREATE TABLE t AS SELECT i, 's' || i AS s, [i, NULL] AS l FROM range(20) r(i)"
CHANGES = (
    "DELETE FROM t WHERE i % 5 = 0",
    "ALTER TABLE t ADD COLUMN d DECIMAL(9, 2) DEFAULT 1.50",
    "INSERT INTO t SELECT i, 'later', [], 2.25 FROM range(20, 25) r(i)",
    "UPDATE t SET s = 'changed' WHERE i = 3",
    "ALTER TABLE t RENAME COLUMN s TO named",
)
# In MySQL's catalogs DuckDB changes no table that has rows, and stores no lists.
CREATE_IN_MYSQL = "CREATE TABLE t AS SELECT i, 's' || i AS s FROM range(20) r(i)"

REFUSAL = r"Only DuckLake versions .*0\.3 are supported"
REFUSAL_IN_MYSQL = r"does not exist"  # it takes any error of its first question for that

Rows = dict[int, list[tuple[Any, ...]]]  # of each snapshot


@pytest.mark.every_catalog
def test_what_duckdb_writes_we_read_migrate_and_add_to(catalog: CatalogDatabase):
    expected = written_by_duckdb(catalog)

    with Lake.connect(catalog.sqlalchemy_url) as lake:
        assert read_by_us(lake, expected) == expected
        if not opens_1_0():
            assert lake.migrate().to_version == "1.0"
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        assert read_by_us(lake, expected) == expected
        newest = lake.read_arrow("t")
        added = lake.append_arrow("t", newest.slice(0, 2)).id
        assert lake.read_arrow("t").num_rows == newest.num_rows + 2
    assert_duckdb_counts(catalog, newest.num_rows + 2, added)


@pytest.mark.every_catalog(mariadb="daily", duckdb="daily")
@pytest.mark.drawn(one_in=1)
def test_what_we_write_duckdb_reads_or_refuses(catalog: CatalogDatabase):
    rows = pa.table({"i": pa.array(range(30), pa.int64()), "s": [f"ü {i}" for i in range(30)]})
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        alone(lake).create_table("t", {"i": "int64", "s": "varchar"})
        lake.append_arrow("t", rows)
        added = lake.append_arrow("t", rows).id

    assert_duckdb_counts(catalog, 60, added)


def written_by_duckdb(catalog: CatalogDatabase) -> Rows:
    """Let DuckDB write a history into a new lake, and read every snapshot with a table in it."""
    in_mysql = catalog.kind == "mariadb"
    with open_lake(catalog.attach_string, catalog.data_path, data_inlining_row_limit=0) as reference:
        for statement in (CREATE_IN_MYSQL,) if in_mysql else (CREATE, *CHANGES):
            reference.sql(statement)
        ids = [one for (one,) in reference.sql("SELECT snapshot_id FROM ducklake_snapshots('lake')") if one]
        return {one: sorted(reference.sql(f"FROM t AT (VERSION => {one})")) for one in ids}


def read_by_us(lake: Lake, snapshots: Rows) -> Rows:
    return {
        one: sorted(tuple(row.values()) for row in lake.read_arrow("t", at=one).to_pylist())
        for one in snapshots
    }


def assert_duckdb_counts(catalog: CatalogDatabase, count: int, snapshot: int) -> None:
    """See that DuckDB reads a lake of 1.0, or that one before 1.5 says that it does not."""
    if not opens_1_0():
        with pytest.raises(duckdb.Error, match=REFUSAL_IN_MYSQL if catalog.kind == "mariadb" else REFUSAL):
            open_lake(catalog.attach_string, read_only=True)
        return
    with open_lake(catalog.attach_string, read_only=True) as reference:
        assert reference.sql(f"SELECT count(*) FROM t AT (VERSION => {snapshot})") == [(count,)]
