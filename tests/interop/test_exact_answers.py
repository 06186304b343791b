"""Row counts and bounds of columns, answered by the catalog while the data files are away."""

import shutil
from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from airflow_provider_ducklake.lake import errors
from airflow_provider_ducklake.lake.catalog.lake import Lake
from tests.interop.corpus import FILES_ONLY, FLUSH
from tests.interop.lakes import alone, by_duckdb
from tests.reference.duckdb_lake import open_lake

CUT = Path(__file__).parents[1] / "golden" / "parquet_mr" / "text_cut.parquet"
COLUMNS = {  # SQL type: least and greatest of three values and a NULL, where the catalog can tell them
    "INTEGER": ("-5", "7", (-5, 7)),
    "UBIGINT": ("0", "18446744073709551615", (0, 2**64 - 1)),
    "DECIMAL(9,2)": ("-1.50", "2.25", (Decimal("-1.50"), Decimal("2.25"))),
    "DATE": ("'1969-12-31'", "'2024-02-29'", (date(1969, 12, 31), date(2024, 2, 29))),
    "VARCHAR": ("''", "'zz'", ("", "zz")),
    "BLOB": (r"'\x00'", r"'\xFF'", (b"\0", b"\xff")),
    "BOOLEAN": ("false", "true", (False, True)),
    "DOUBLE": ("-1.5", "'inf'", (-1.5, float("inf"))),
    "DOUBLE ": ("-1.5", "'nan'", None),
    "VARCHAR ": ("'a'", "repeat('z', 300)", None),
    "INTEGER[]": ("[1]", "[2]", None),
    "STRUCT(a INTEGER)": ("{'a': 1}", "{'a': 2}", None),
}


@pytest.mark.parametrize("inlined", [False, True])
def test_bounds_of_every_type(catalog, inlined):
    with open_lake(catalog) as reference:
        if not inlined:
            reference.sql(FILES_ONLY)
        for number, (type_, (low, high, _)) in enumerate(COLUMNS.items()):
            reference.sql(f"CREATE TABLE t{number} (c {type_})")
            reference.sql(f"INSERT INTO t{number} VALUES ({high}), (NULL), ({low})")
    _take_away(catalog)
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        for number, (type_, (_, _, wanted)) in enumerate(COLUMNS.items()):
            found = lake.column_bounds(f"t{number}", "c")
            assert (found and (found.min.as_py(), found.max.as_py())) == wanted, type_
            assert lake.row_count(f"t{number}") == 3


def _take_away(catalog) -> None:
    shutil.rmtree(Path(catalog.data_path))
    Path(catalog.data_path).mkdir()


def test_counts_need_no_file_but_a_flushed_one_of_a_later_snapshot(catalog):
    with open_lake(catalog) as reference:
        reference.sql("CREATE TABLE t AS SELECT x AS i FROM range(50) r(x)")
        reference.sql("DELETE FROM t WHERE i < 3")  # marks in the catalog
        reference.sql("CREATE TABLE u AS SELECT x AS i FROM range(5) r(x)")
        reference.sql("INSERT INTO u VALUES (5)")
        reference.sql("DELETE FROM u WHERE i < 2")
        counts = [
            (name, at, reference.sql(f"SELECT count(*) FROM {name} AT (VERSION => {at})")[0][0])
            for name, at in [("t", 1), ("t", 2), ("u", 3), ("u", 4), ("u", 5)]
        ]
        reference.sql(FLUSH)
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        assert [(name, at, lake.row_count(name, at)) for name, at, _ in counts] == counts
        assert lake.row_count("u") == 4
        assert lake.column_bounds("u", "i", at=3) is None
        _take_away(catalog)
        assert lake.row_count("t", 1) == 50
        with pytest.raises(errors.StorageError):
            lake.row_count("u", 3)


def test_what_hides_the_bounds(catalog):
    with open_lake(catalog) as reference:
        reference.sql("CREATE TABLE t AS SELECT x AS i, 1.5::FLOAT AS f FROM range(50) r(x)")
        reference.sql("ALTER TABLE t ADD COLUMN late INT DEFAULT 7")
        reference.sql("INSERT INTO t SELECT x, 2.5, 3 FROM range(50, 99) r(x)")
        reference.sql("ALTER TABLE t ALTER f SET DATA TYPE DOUBLE")
        reference.sql("DELETE FROM t WHERE i = 0")
    with Lake.connect(catalog.sqlalchemy_url) as lake:

        def bounds(column, at):
            found = lake.column_bounds("t", column, at)
            return found and (found.min.as_py(), found.max.as_py())

        assert [bounds("i", at) for at in (1, 2, 3, 4, 5)] == [(0, 49), (0, 49), (0, 98), (0, 98), None]
        assert [bounds("late", at) for at in (2, 3)] == [(7, 7), (3, 7)]
        assert [bounds("f", at) for at in (3, 4)] == [(1.5, 2.5), None]
        with pytest.raises(errors.ColumnNotFoundError):
            bounds("late", 1)
        with pytest.raises(errors.TableNotFoundError):
            lake.row_count("t", at=0)


def test_a_table_without_rows_has_bounds_without_values(catalog):
    by_duckdb(catalog, "CREATE TABLE t (i INT)", "INSERT INTO t VALUES (NULL)")
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        for at in (1, 2):
            found = lake.column_bounds("t", "i", at)
            assert (found.min.as_py(), found.max.as_py()) == (None, None)


def test_bounds_that_another_writer_may_have_cut_are_no_answer_and_lose_no_row(sqlite_catalog, tmp_path):
    path, copy = (shutil.copy(CUT, tmp_path / name) for name in ("cut.parquet", "copy.parquet"))
    statistics = pq.read_metadata(path).row_group(0).column(0).statistics
    assert (statistics.min_raw, statistics.max_raw) == (b"abc", b"abd")  # of abcdef to abd
    with open_lake(sqlite_catalog) as reference:
        reference.sql("CREATE TABLE t (c VARCHAR)")
        reference.sql("CREATE TABLE p (c VARCHAR)")
        reference.sql("ALTER TABLE p SET PARTITIONED BY (c)")
        with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
            alone(lake).add_data_files("t", [str(path)])
            assert lake.column_bounds("t", "c") is None
            for where in ("c = 'abcxyz'", "c >= 'abcxyz' AND c < 'abd'", "c > 'abcz'"):
                found = lake.read_arrow("t", filter=where).num_rows
                assert [(found,)] == reference.sql(f"SELECT count(*) FROM t WHERE {where}") == [(1,)]
            with pytest.raises(errors.InvalidPartitionError), lake.transaction() as transaction:
                transaction.add_data_files("p", [str(copy)])
