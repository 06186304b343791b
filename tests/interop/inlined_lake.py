"""Inlined tables of a lake, seen with our own code below the commit."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Table, create_engine

from airflow_provider_ducklake.lake.catalog.database.tables import catalog_tables
from airflow_provider_ducklake.lake.catalog.snapshot.inlined_tables import inlined_table
from airflow_provider_ducklake.lake.format.schema import TableSchema
from airflow_provider_ducklake.lake.format.types.ducklake_types import DuckLakeType
from airflow_provider_ducklake.lake.format.versions import DEFAULT
from tests.interop.reference_table import schema_of
from tests.interop.type_values import NULL_STRUCTS, TYPES
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import DuckLakeConnection

LEGACY = {"interval": "INTERVAL", "int128": "HUGEINT", "uint128": "UHUGEINT", "timetz": "TIMETZ"}
NESTED = {
    "list of texts": (
        "VARCHAR[]",
        [r"""['a,b', '', ' x', 'it''s', 'q"', '{}', 'NULL', NULL, 'new' || chr(10), 'b\', 'a=b', 'é😀']"""],
    ),
    "list of list of texts": ("VARCHAR[][]", ["[['a]', '['], [], NULL, ['{', '\"', '''', '\\']]"]),
    "struct of texts": (
        "STRUCT(a VARCHAR, b VARCHAR, c VARCHAR[])",
        [
            r"""{'a': 'it''s', 'b': 'b\', 'c': ['a]']}""",
            r"""{'a': '', 'b': 'NULL', 'c': []}""",
            r"""{'a': ' }', 'b': 'x"y', 'c': NULL}""",
        ],
    ),
    "struct with names": ('STRUCT("it\'s" INTEGER, "q""x" INTEGER, "a: b" INTEGER)', ["ROW(1, 2, NULL)"]),
    "list of struct of texts": ("STRUCT(a VARCHAR)[]", ["[{'a': '}'}, {'a': 'it''s'}, NULL]"]),
    "map of texts": ("MAP(VARCHAR, VARCHAR)", [r"MAP {'a=b': 'c,d', '': '', '\': 'it''s', 'NULL': NULL}"]),
    "struct of all": (
        (
            "STRUCT(b BOOLEAN, u UBIGINT, f FLOAT, d DOUBLE, n DECIMAL(9,2), da DATE, t TIME, ts TIMESTAMP,"
            " tz TIMESTAMPTZ, tn TIMESTAMP_NS, uu UUID, bl BLOB, j JSON)"
        ),
        [
            (
                "ROW(true, 18446744073709551615, 1.1::FLOAT, 'nan'::DOUBLE, -1.5, '0044-03-15 (BC)',"
                " '12:30:00.5', '2020-01-01', '2020-01-01 00:00:00.5+02', '2020-01-01 00:00:00.123456789',"
                r""" '00000000-0000-0000-0000-0000000000ff', '\xDE\x27a'::BLOB, '{"a": [1, "x"]}')"""
            ),
            (
                "ROW(NULL, 0, '-0.0'::FLOAT, '-inf'::DOUBLE, 0, '2020-01-01', '00:00:00', 'infinity',"
                " '2020-01-01 00:00:00+00', '2020-01-01', NULL, ''::BLOB, '1')"
            ),
        ],
    ),
    "list of blob": ("BLOB[]", [r"['\x00\xFFab'::BLOB, ''::BLOB, ' '::BLOB, '\x27\x5C'::BLOB, NULL]"]),
    "map in list": ("MAP(VARCHAR, INTEGER)[]", ["[MAP {'a': 1}, NULL, MAP {}]"]),
}
NEVER_INLINED = "GEOMETRY"
VALUES = {name: one for name, one in {**TYPES, **NULL_STRUCTS, **NESTED}.items() if one[0] != NEVER_INLINED}
NAMES = {name: f"t{number}" for number, name in enumerate(VALUES)}


def write_all(lake: DuckLakeConnection, names: dict[str, str] = NAMES) -> None:
    """Let the reference make a table `c <type>` for each and insert the values."""
    for name, table in names.items():
        type_, values = VALUES[name]
        lake.sql(f"CREATE TABLE {table} (c {type_})")
        lake.sql(f"INSERT INTO {table} VALUES {', '.join(f'({value})' for value in values)}")


def schema(name: str) -> TableSchema:
    return schema_of(c=VALUES[name][0])


def type_of(name: str) -> DuckLakeType:
    return schema(name).columns[0].type


@contextmanager
def database(catalog: CatalogDatabase) -> Iterator[Connection]:
    engine = create_engine(catalog.sqlalchemy_url)
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


def inlined(name: str) -> Table:
    """Return the inlined table of a table that `write_all` made in an empty lake."""
    number = 2 * list(NAMES).index(name) + 1  # each CREATE and each INSERT is a snapshot, only one a version
    table_id = (number + 1) // 2
    return inlined_table(schema(name), table_id, table_id, catalog_tables(DEFAULT))


def shown(value: object) -> object:
    """Return what tells any two values apart: NaN is itself, -0.0 is not 0.0."""
    if isinstance(value, dict):
        return {key: shown(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [shown(item) for item in value]
    return repr(value)
