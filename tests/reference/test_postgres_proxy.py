"""A connection that breaks after COMMIT: the rows are there, and what each client does with their files."""

from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import CommitStateUnknownError
from airflow_provider_ducklake.lake.planning.upkeep.findings import FindingCode
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake
from tests.reference.postgres_proxy import ends_transaction, postgres_proxy
from tests.reference.s3_proxy import Drop

ROWS = pa.table({"i": pa.array(range(20), pa.int64())})


class LostAnswer:
    """Loses the answer to the next COMMIT once it is armed."""

    is_armed = False

    def __call__(self, sent: bytes) -> Drop | None:
        if not (self.is_armed and ends_transaction(sent)):
            return None
        self.is_armed = False
        return Drop(after=True)


@pytest.fixture
def lake(postgres_catalog: CatalogDatabase):
    with Lake.create(postgres_catalog.sqlalchemy_url, postgres_catalog.data_path) as lake:
        with lake.transaction() as tx:
            tx.create_table("t", {"i": "int64"})
        yield lake


def test_our_commit_of_unknown_outcome_keeps_its_files(lake, postgres_catalog):
    fault, server = LostAnswer(), postgres_catalog.server
    with postgres_proxy(int(server["port"]), fault) as port:
        url = postgres_catalog.sqlalchemy_url.replace(server["port"], str(port))
        with Lake.connect(url) as through:
            tx = through.transaction(commit_key="k")
            tx.append_arrow("t", ROWS)
            fault.is_armed = True
            with pytest.raises(CommitStateUnknownError):
                tx.__exit__(None, None, None)
            again = through.append_arrow("t", ROWS, commit_key="k")

    assert again.is_earlier
    assert lake.read_arrow("t").num_rows == 20
    assert lake.verify() == []


def test_the_reference_deletes_the_files_of_a_commit_that_landed(lake, postgres_catalog):
    fault, server = LostAnswer(), postgres_catalog.server
    with postgres_proxy(int(server["port"]), fault) as port:
        attach = postgres_catalog.attach_string.replace(f"port={server['port']}", f"port={port}")
        with open_lake(attach, postgres_catalog.data_path) as reference:
            reference.sql("FROM t")
            fault.is_armed = True
            with pytest.raises(duckdb.Error):
                reference.sql("INSERT INTO t FROM range(20)")

    assert [Path(file.data_file).exists() for file in lake.files("t")] == [False]
    assert [one.code for one in lake.verify()] == [FindingCode.FILE_MISSING]
