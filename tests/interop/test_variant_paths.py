"""Filters on what lies in variants: rows as DuckDB finds them, files left out by what is known of paths."""

import random

import duckdb
import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import InvalidInputError
from airflow_provider_ducklake.lake.spec.types.variants import encode_variant
from tests.reference.duckdb_lake import open_lake

SCALARS = (
    "0", "-1::TINYINT", "5::SMALLINT", "5::BIGINT", "300", "5::HUGEINT", "5.0::DOUBLE", "5.25::FLOAT",
    "0.1::DOUBLE", "0.1::DECIMAL(3,1)", "5.00::DECIMAL(10,2)", "-12345678901234567890.5::DECIMAL(30,2)",
    "'nan'::DOUBLE", "'5'", "''", "'é'", "'zz'", "true", "false", "DATE '2024-01-31'",
    "TIMESTAMP '2024-01-31 00:00:00'", "TIMESTAMP '1969-12-31 23:59:59.999999'", "NULL",
    "TIMESTAMP_NS '2024-01-31 00:00:00.000000001'", "TIMESTAMPTZ '2024-01-31 00:00:00+00'", "[1, 2]",
    "{'x': 1}", "'ab'::BLOB",
)  # fmt: skip
LITERALS = (
    "5", "0", "-1", "300", "5.25", "0.1", "5e0", "0.1e0", "'5'", "''", "'é'", "true", "false", "NULL",
    "DATE '2024-01-31'", "TIMESTAMP '2024-01-31 00:00:00'", "12345678901234567890.5",
)  # fmt: skip
PATHS = ("v.a", "v.A", 'v."a.b"', "v.o.a", "v.a.x", "v.none")
OPERATORS = ("=", "<>", "<", "<=", ">", ">=")


def a_condition(rng: random.Random) -> str:
    path, operator, literals = rng.choice(PATHS), rng.choice(OPERATORS), rng.sample(LITERALS, 3)
    low, high = rng.choice((("0", "300"), ("5", "5.25"), ("''", "'é'"), ("DATE '1969-01-01'", LITERALS[-2])))
    return rng.choice(
        (
            f"{path} {operator} {literals[0]}",
            f"{literals[0]} {operator} {path}",
            f"NOT ({path} {operator} {literals[0]})",
            f"{path} IS NULL",
            f"{path} IS NOT NULL",
            f"{path} IN ({', '.join(literals)})",
            f"{path} NOT IN ({literals[0]}, {literals[1]})",
            f"{path} BETWEEN {low} AND {high}",
            f"id < 20 AND {path} {operator} {literals[0]}",
        )
    )


def a_variant(rng: random.Random, kinds: tuple[str, ...]) -> str:
    def value() -> str:
        return rng.choice(kinds)

    fields = {rng.choice("aaA"): value(), "a.b": value(), "o": f"{{'a': {value()}}}"}
    kept = [name for name in fields if rng.random() < 0.8] or ["o"]
    document = "{" + ", ".join(f"'{name}': {fields[name]}" for name in kept) + "}"
    return rng.choice((document,) * 9 + ("NULL", "7"))


ALIKE = (("5", "6", "9"), ("'x'", "'5'", "NULL"), ("0.5::DOUBLE", "'nan'::DOUBLE"), ("1.5", "2.5"))


@pytest.fixture
def drawn(catalog, seed):
    """A lake whose files DuckDB shreds in many ways, and one file that we wrote in one piece."""
    rng = random.Random(seed)
    with open_lake(catalog) as reference:
        reference.sql("CREATE TABLE t (id INTEGER, v VARIANT)")
        for number, kinds in enumerate((*ALIKE, *ALIKE, SCALARS)):
            rows = (f"SELECT {10 * number + n}, ({a_variant(rng, kinds)})::VARIANT" for n in range(10))
            reference.sql(f"INSERT INTO t {' UNION ALL '.join(rows)}")
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        written = [{"a": 5, "o": {"a": "x"}}, {"a": "5"}, {"A": 0.1}, None, [1]]
        parts = [dict(zip(("metadata", "value"), encode_variant(one), strict=True)) for one in written]
        lake.append_arrow("t", pa.table({"id": pa.array(range(1000, 1005), pa.int32()), "v": parts}))
        yield lake


# The last two DuckDB compares, by rounding, or in the session's time zone.
REFUSED = (
    "does not compare",
    "compares with no value",
    "compared exactly with the float",
    "without a time zone",
)


def duckdb_finds(reference, where):
    """Return the ids of rows, None where DuckDB compares values of two kinds."""
    try:
        return sorted(id_ for (id_,) in reference.sql(f"SELECT id FROM copied WHERE {where}"))
    except duckdb.Error as error:
        if "Can't compare" in str(error) or "for BETWEEN" in str(error):
            return None
        raise


def we_find(lake, where):
    """Return the ids of rows, or why we refuse."""
    try:
        return sorted(lake.read_arrow("t", columns=["id"], filter=where)["id"].to_pylist())
    except InvalidInputError as error:
        return next(text for text in REFUSED if text in str(error))


def test_rows_are_those_that_duckdb_finds(drawn, catalog, seed):
    rng = random.Random(seed + 1)
    counts = {"same rows": 0, "refused": 0, "fewer files": 0}
    with open_lake(catalog) as reference:
        reference.sql("CREATE TEMP TABLE copied AS FROM t")  # has no statistics to go by
        for _ in range(150):
            where = a_condition(rng)
            expected, found = duckdb_finds(reference, where), we_find(drawn, where)
            if isinstance(found, str):
                assert expected is None or found in REFUSED[2:] or "id <" in where, where
                counts["refused"] += 1
            elif expected is not None:  # else a file was left out, or AND left rows out
                assert found == expected, where
                counts["same rows"] += 1
                counts["fewer files"] += len(drawn.scan("t", filter=where).files) < 10
    assert min(counts.values()) > 5, counts


def test_distinct_is_what_equal_is_where_something_is_there(drawn):
    """DuckDB 1.5 compares the bytes of numbers there, and finds other rows in a filter than in a column."""
    everything = {row["id"] for row in drawn.read_arrow("t", columns=["id"]).to_pylist()}

    def rows(where: str) -> set[int]:
        return set(drawn.read_arrow("t", columns=["id"], filter=where)["id"].to_pylist())

    where = "id < 10 AND v.a IS {}DISTINCT FROM 5"
    same, other = rows(where.format("NOT ")), rows(where.format(""))

    assert same == rows("id < 10 AND v.a = 5")
    assert same | other == {one for one in everything if one < 10}
    assert not same & other


def test_a_column_with_the_name_of_a_part_of_a_variant_hides_no_rows(sqlite_catalog):
    """Arrow takes both for one where it is told whose statistics to write, so there are none of the part."""
    part = "v.typed_value.a.typed_value"
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake:
        lake.set_option("data_inlining_row_limit", 0)
        with lake.transaction() as tx:
            tx.create_table("t", {"v": "variant", part: "float64"})
        metadata, value = encode_variant({"a": 1})
        lake.append_arrow("t", pa.table({"v": [{"metadata": metadata, "value": value}], part: [1.5]}))

        assert lake.read_arrow("t", columns=[part], filter="v.a = 1").to_pylist() == [{part: 1.5}]
        assert lake.read_arrow("t", columns=[part], filter="v.a = 2").to_pylist() == []


def test_rows_are_deleted_by_what_lies_in_them(drawn, catalog):
    where = 'v."a.b" IS NULL OR v.none = 1'
    with open_lake(catalog) as reference:
        kept = sorted(reference.sql(f"SELECT id FROM t WHERE ({where}) IS NOT TRUE"))

    assert 0 < len(kept) < 75
    with drawn.transaction() as tx:
        tx.delete_rows("t", where)

    with open_lake(catalog) as reference:
        assert sorted(reference.sql("SELECT id FROM t")) == kept
    assert sorted((id_,) for id_ in drawn.read_arrow("t", columns=["id"])["id"].to_pylist()) == kept
    assert drawn.verify() == []
