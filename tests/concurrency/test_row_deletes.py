"""Several that delete rows of one file at once lose none of their deletes."""

from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import TransactionConflictError
from tests.reference.catalog_dump import dump_catalog
from tests.reference.duckdb_lake import open_lake

pytestmark = pytest.mark.both_versions

WRITERS, DELETES = 3, 3


def delete_each(url: str, rows: range) -> int:
    """Delete rows one by one, each until it is done; return how many tries were conflicts."""
    conflicts = 0
    with Lake.connect(url) as lake:
        for row in rows:
            while True:
                try:
                    with lake.transaction() as tx:
                        assert tx.delete_rows("t", f"i = {row}") == 1
                    break
                except TransactionConflictError:
                    conflicts += 1
    return conflicts


def test_racing_deletes_of_one_file_are_all_there(catalog):
    count = WRITERS * DELETES
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path, version=catalog.spec_version) as lake:
        lake.set_option("data_inlining_row_limit", 0)
        with lake.transaction() as tx:
            tx.create_table("t", {"i": "int64"})
        lake.append_arrow("t", pa.table({"i": pa.array(range(count + 1), pa.int64())}))
    ranges = [range(first, count, WRITERS) for first in range(WRITERS)]

    with ThreadPoolExecutor(WRITERS) as threads:
        conflicts = sum(threads.map(lambda rows: delete_each(catalog.sqlalchemy_url, rows), ranges))

    print(f"{count} deletes of one file, {conflicts} conflicts")  # noqa: T201 - how much they raced
    (delete_file,) = dump_catalog(catalog)["ducklake_delete_file"]
    assert (delete_file["delete_count"], delete_file["partial_max"]) == (count, 2 + count)
    with open_lake(catalog) as duck:
        for gone in range(count + 1):
            query = f"SELECT count(i) FROM t AT (VERSION => {2 + gone})"
            assert duck.sql(query) == [(count + 1 - gone,)]
        deletions = "SELECT snapshot_id FROM ducklake_table_deletions('lake', 'main', 't', 3, {})"
        assert sorted(duck.sql(deletions.format(2 + count))) == [(3 + one,) for one in range(count)]
