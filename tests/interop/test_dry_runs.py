"""Dry runs only read: they end while another one holds the commit lock."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from tests.interop.lakes import alone

NOTHING = timedelta(0)
DRY_RUNS: dict[str, Callable[[Lake], object]] = {
    "expiry": lambda lake: lake.expire_snapshots(keep_last=1, dry_run=True),
    "clean-up": lambda lake: lake.cleanup_old_files(older_than=NOTHING, dry_run=True),
    "orphans": lambda lake: lake.delete_orphaned_files(older_than=NOTHING, dry_run=True),
    "flush": lambda lake: lake.flush_inlined_data(dry_run=True),
    "migration": lambda lake: lake.migrate("1.1", dry_run=True),
    "repair": lambda lake: lake.repair(lake.verify(), dry_run=True),
    "restore": lambda lake: lake.restore("t", at=2, dry_run=True),
}


# Without DuckDB files: an open one shuts all other clients out, whatever they do.
@pytest.mark.parametrize("kind", ["sqlite", "postgres", pytest.param("mariadb", marks=pytest.mark.databases)])
def test_no_dry_run_waits_for_the_commit_lock(new_catalog, kind):
    catalog = new_catalog(kind)
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        alone(lake).create_table("t", {"id": "int64"})
        for number in range(2):
            lake.append_arrow("t", pa.table({"id": pa.array([number], pa.int64())}))
        alone(lake).delete_rows("t", "id = 0")
        with (
            Lake.connect(catalog.sqlalchemy_url) as other,
            ThreadPoolExecutor() as pool,
            other.opened.catalog.dialect.writing(),
        ):
            done = {name: pool.submit(run, lake).result(timeout=50) for name, run in DRY_RUNS.items()}

    assert done.keys() == DRY_RUNS.keys()
