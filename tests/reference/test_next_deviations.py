"""ducklakepy writes the rows that the reference writes in a lake of 1.0, but for known ones."""

import re

from tests.reference import duckdb_lake, ducklakepy_lake
from tests.reference.catalog_dump import catalog_differences, dump_catalog
from tests.reference.catalogs import CatalogDatabase
from tests.reference.ducklakepy_lake import DEVIATIONS

STATEMENTS = (
    "CREATE TABLE t (i BIGINT, s VARCHAR DEFAULT 'x', n STRUCT(a INTEGER), ts TIMESTAMPTZ, b BLOB)",
    "INSERT INTO t (i, s, b) SELECT n, repeat('a', 300), '\\x00\\xff'::BLOB FROM range(20) r(n)",
    "DELETE FROM t WHERE i = 3",
    "DELETE FROM t WHERE i BETWEEN 4 AND 15",
    "COMMENT ON TABLE t IS 'hello'",
    "COMMENT ON TABLE t IS NULL",
    "ALTER TABLE t ADD COLUMN late INTEGER",
    "ALTER TABLE t RENAME TO renamed",
    "CREATE SCHEMA s",
    "CREATE VIEW s.v AS SELECT 1 AS x",
    "CREATE TABLE small (i BIGINT, ts TIMESTAMPTZ)",
    "INSERT INTO small VALUES (7, NULL)",
    "DELETE FROM small WHERE i = 7",
    "DROP TABLE renamed",
)


def write_by_ducklakepy(catalog: CatalogDatabase) -> None:
    columns = {"i": "int64", "s": "varchar", "n": {"a": "int32"}, "ts": "timestamptz", "b": "blob"}
    with ducklakepy_lake.open_lake(catalog, version="1.0") as lake:
        lake.create_table("t", columns, defaults={"s": "x"})
        lake.insert("t", [{"i": n, "s": "a" * 300, "b": b"\x00\xff"} for n in range(20)])
        lake.delete("t", "i = 3")
        lake.delete("t", "i BETWEEN 4 AND 15")
        lake.comment("t", "hello")
        lake.comment("t", None)
        lake.add_column("t", "late", "int32")
        lake.rename_table("t", "renamed")
        lake.create_schema("s")
        lake.create_view("s.v", "SELECT 1 AS x")
        lake.create_table("small", {"i": "int64", "ts": "timestamptz"})
        lake.insert("small", [{"i": 7, "ts": None}])
        lake.delete("small", "i = 7")
        lake.drop_table("renamed")


def test_what_differs_is_known(sqlite_catalog, new_catalog):
    theirs = new_catalog("sqlite")
    write_by_ducklakepy(sqlite_catalog)
    with duckdb_lake.open_lake(theirs) as reference:
        for statement in STATEMENTS:
            reference.sql(statement)

    differences = list(catalog_differences(dump_catalog(sqlite_catalog), dump_catalog(theirs)))

    assert {_place(difference) for difference in differences} == DEVIATIONS.keys(), "\n".join(differences)


def _place(difference: str) -> str:
    """Name the column that differs, or the table if it is a whole row."""
    table, what, rest = re.match(r"(\w+)[^:]*: (\w+)(.*)", difference, re.DOTALL).groups()
    return f"{table}.{what}" if rest.startswith(":") else table
