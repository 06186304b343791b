"""Who may read the files that hold a catalog: no copy is for more than the original is."""

import os
import stat
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from tests.interop.lakes import by_duckdb
from tests.interop.test_encrypted_lakes import keys

ROWS = pa.table({"i": pa.array(range(100), pa.int64())})


@pytest.fixture(params=["sqlite", "duckdb"])
def catalog(request, new_catalog):
    before = os.umask(0o022)
    yield new_catalog(request.param, "1.0")
    os.umask(before)


def mode(path: str | Path) -> int:
    return stat.S_IMODE(Path(path).stat().st_mode)


def make(catalog, *, encrypted: bool) -> None:
    made = Lake.create(catalog.sqlalchemy_url, catalog.data_path, encrypted=encrypted)
    with made as lake, lake.transaction() as tx:
        tx.create_table("t", {"i": "int64"})
        tx.append_arrow("t", ROWS)


def test_an_encrypted_lake_begins_with_a_catalog_for_its_owner_alone(catalog):
    make(catalog, encrypted=True)

    assert mode(catalog.location) == 0o600
    assert len(keys(catalog)) == 1
    assert by_duckdb(catalog, "SELECT count(*) FROM t", encrypted=True) == [(100,)]


def test_the_mode_of_a_catalog_that_was_there_is_left_alone(catalog):
    make(catalog, encrypted=False)

    assert mode(catalog.location) == 0o644


@pytest.mark.parametrize("chosen", [0o600, 0o640])
def test_the_backup_of_a_migration_is_for_those_who_may_read_the_catalog(catalog, chosen):
    make(catalog, encrypted=True)
    Path(catalog.location).chmod(chosen)

    with Lake.connect(catalog.sqlalchemy_url) as lake:
        backup = lake.migrate("1.1").backup

    assert mode(backup) == mode(catalog.location) == chosen
    with Lake.connect(f"{catalog.kind}:///{backup}") as lake:
        assert lake.row_count("t") == 100
    assert not [one for one in Path(backup).parent.iterdir() if one.name.startswith(".")]


@pytest.mark.parametrize(("encrypted", "chosen", "expected"), [(True, 0o644, 0o400), (False, 0o640, 0o440)])
def test_a_frozen_catalog_is_for_those_who_may_read_the_catalog(
    catalog, encrypted, chosen, expected, tmp_path
):
    make(catalog, encrypted=encrypted)
    Path(catalog.location).chmod(chosen)

    with Lake.connect(catalog.sqlalchemy_url) as lake:
        lake.export_catalog(f"{tmp_path}/frozen.{catalog.kind}")

    assert mode(tmp_path / f"frozen.{catalog.kind}") == expected
