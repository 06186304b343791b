"""Values of a type that a restore narrowed again lie in files as rows that are gone: no cast fails."""

import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from tests.interop.lakes import by_duckdb
from tests.interop.restoring import assert_read_alike

# narrow type, wide type, a value that only the wide one has
TYPES = {
    "INTEGER": ("BIGINT", "4611686018427387904"),
    "UTINYINT": ("UINTEGER", "4000000000"),
    "DECIMAL(4, 2)": ("DECIMAL(9, 2)", "1234567.25"),
    "FLOAT": ("DOUBLE", "1e300"),
}


def flush(lake, catalog, by):
    if by == "ours":
        lake.flush_inlined_data()
    else:
        by_duckdb(catalog, "CALL ducklake_flush_inlined_data('lake')")


@pytest.mark.parametrize("by", ["ours", "duckdb"])
@pytest.mark.parametrize("narrow", TYPES)
def test_gone_rows_are_not_cast(sqlite_catalog, by, narrow):
    wide, value = TYPES[narrow]
    by_duckdb(
        sqlite_catalog,
        f"CREATE TABLE t (id BIGINT, c {narrow}, l {narrow}[])",
        "INSERT INTO t VALUES (1, 1, [1]), (2, 2, [2])",
    )
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        then = lake.current_snapshot().id
        by_duckdb(
            sqlite_catalog,
            f"ALTER TABLE t ALTER c TYPE {wide}",
            f"INSERT INTO t SELECT i, {value}, [3] FROM range(3, 9) r(i)",
            "DELETE FROM t WHERE id = 5",
        )
        lake.restore("t", at=then)
        flush(lake, sqlite_catalog, by)

        assert lake.read_arrow("t", columns=["id"]).sort_by("id")["id"].to_pylist() == [1, 2]
        assert lake.read_arrow("t", filter="c >= 2")["id"].to_pylist() == [2]
        assert lake.row_count("t") == 2
        assert_read_alike(lake, sqlite_catalog)

        before = lake.current_snapshot().id
        by_duckdb(sqlite_catalog, "INSERT INTO t (id) VALUES (20)")
        assert lake.changes("t", before + 1, before + 1).read_arrow()["id"].to_pylist() == [20]
        lake.restore("t", at=then)
        assert_read_alike(lake, sqlite_catalog)
