"""A PostgreSQL server whose settings are unlike the usual ones stores and gives the same."""

import psycopg
import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import InvalidInputError
from tests.interop.inlined_lake import shown
from tests.interop.lakes import alone
from tests.reference.duckdb_lake import open_lake

SETTINGS = (
    "standard_conforming_strings = off",
    "client_encoding = 'LATIN1'",
    "datestyle = 'SQL, DMY'",
    "intervalstyle = 'sql_standard'",
    "extra_float_digits = -5",
    "default_transaction_isolation = 'serializable'",
)
ROWS = pa.table(
    {
        "t": ["it's \\ 100% é😀 \u20ac", "", None],
        "b": [b"\x00\\'\xff", b"", None],
        "f": pa.array([1.1, -0.0, float("nan")], pa.float32()),
        "d": pa.array([-0.0, 5e-324, -1.7976931348623157e308]),
        "i": pa.array([-(2**15), 0, None], pa.int16()),
    }
)
TYPES = {"t": "varchar", "b": "blob", "f": "float32", "d": "float64", "i": "int16"}


@pytest.fixture
def odd_server(postgres_catalog):
    with psycopg.connect(postgres_catalog.location, autocommit=True) as admin:
        for setting in SETTINGS:
            admin.execute(f"ALTER DATABASE {postgres_catalog.database} SET {setting}")
    return postgres_catalog


def test_rows_go_through_a_commit_as_they_are(odd_server):
    with Lake.create(odd_server.sqlalchemy_url, odd_server.data_path) as lake:
        with lake.transaction(message="é😀 100%") as tx:
            tx.create_table("t", TYPES)
            tx.append_arrow("t", ROWS)
        lake.append_arrow("t", ROWS.slice(1))

        assert lake.read_arrow("t").num_rows == 5
        assert shown(lake.read_arrow("t").slice(0, 3).to_pylist()) == shown(ROWS.to_pylist())
        assert lake.snapshots()[-2].message == "é😀 100%"
        assert not list(lake.table_snapshot("t", with_files=True).files)


def test_the_reference_reads_minus_zero_as_it_was(postgres_catalog):
    with Lake.create(postgres_catalog.sqlalchemy_url, postgres_catalog.data_path) as lake:
        alone(lake).create_table("t", TYPES)
        lake.append_arrow("t", ROWS)
    with open_lake(postgres_catalog) as duck:
        assert shown(duck.sql("SELECT * FROM t")) == shown([tuple(row.values()) for row in ROWS.to_pylist()])


@pytest.mark.parametrize("text", ["a NUL \0", "half a character \ud83d"])
def test_a_message_that_is_no_text_for_a_database_is_refused_before_it_gets_there(postgres_catalog, text):
    with Lake.create(postgres_catalog.sqlalchemy_url, postgres_catalog.data_path) as lake:
        alone(lake).create_table("t", {"i": "int64"})
        with pytest.raises(InvalidInputError, match="message or author"):
            lake.append_arrow("t", pa.table({"i": range(100)}), message=text)

        assert lake.read_arrow("t").num_rows == 0
