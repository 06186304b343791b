"""The examples of the page on `LakeSession`, and the tables of `docs/types.md`."""

import re
from pathlib import Path

import pytest
from pyspark.sql import functions as f
from pyspark.sql import types as t

from airflow_provider_ducklake.lake.errors import UnsupportedFeatureError
from airflow_provider_ducklake.lake.format.schema import Column
from airflow_provider_ducklake.lake.format.snapshots import ColumnId
from airflow_provider_ducklake.lake.format.types.ducklake_types import (
    NOT_STORABLE,
    SCALARS,
    DuckLakeType,
    parse_type,
)
from airflow_provider_ducklake.lake.spark.types.spark_types import (
    INTERVAL,
    read_type,
    scalar_of_spark,
    to_insertable,
)
from airflow_provider_ducklake.lake.spark.writing.assignment import _fits
from airflow_provider_ducklake.lake.storage.arrow.arrow_types import arrow_type
from tests.reference.duckdb_lake import open_lake

PAGE = Path(__file__).parents[2] / "docs" / "session.md"


@pytest.mark.classic_only("the page starts a session of a JVM")
@pytest.mark.usefixtures("spark")  # which the page gets
def test_the_examples_run_and_print_what_they_say(tmp_path, capsys):
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    code = "".join(blocks).replace("/data/", f"{tmp_path}/")

    exec(compile(code, PAGE.name, "exec"), {})

    promised = re.findall(r"^print\(.*\)  # (.*)$", code, re.MULTILINE)
    assert capsys.readouterr().out.splitlines() == promised
    with open_lake(f"ducklake:sqlite:{tmp_path}/lake.sqlite") as reference:
        assert reference.sql("SELECT id, price FROM orders ORDER BY id") == [(2, 1.0), (3, 2.0), (3, 2.0)]


# --- the tables of docs/types.md against the code ---

TYPES = PAGE.with_name("types.md").read_text()
SPARK_TYPES = [
    t.BooleanType(),
    t.ByteType(),
    t.ShortType(),
    t.IntegerType(),
    t.LongType(),
    t.FloatType(),
    t.DoubleType(),
    t.DecimalType(20, 0),
    t.DateType(),
    t.TimestampNTZType(),
    t.TimestampType(),
    t.StringType(),
    t.BinaryType(),
    t.VariantType(),
]
TAKEN_TYPES = [*SPARK_TYPES, INTERVAL]


def table(header: str) -> dict[str, list[str]]:
    """Return the rows of a table below its header, by their first cell, backticks dropped."""
    lines = TYPES.split(f"| {header} |", 1)[1].splitlines()[2:]
    rows = lines[: [line.startswith("|") for line in [*lines, ""]].index(False)]
    cells = [[cell.strip().replace("`", "") for cell in row.strip("|").split("|")] for row in rows]
    return {first: rest for first, *rest in cells}


def words(cell: str) -> set[str]:
    return set(filter(None, re.split(r",\s*(?![^(<]*[)>])", cell)))


COLUMNS = table("DuckLake")


def described(type_: DuckLakeType) -> list[object]:
    return [
        {spark.simpleString() for spark in TAKEN_TYPES if _fits(spark, type_)},
        str(arrow_type(type_)).replace("extension<arrow.uuid>", "uuid"),
    ]


def test_every_scalar_that_can_be_stored_has_a_row():
    assert set(COLUMNS) == SCALARS.keys() - NOT_STORABLE


@pytest.mark.parametrize("name", COLUMNS)
def test_a_row_says_what_goes_in_and_what_comes_out(name):
    spellings, spark, arrow = COLUMNS[name]

    assert [words(spark), arrow] == described(parse_type(name))
    assert all(str(parse_type(spelling)) == name for spelling in words(spellings))


def test_new_tables_get_these_types():
    rows = table("Spark column")

    assert {text: cells[0] for text, cells in rows.items()} == {
        spark.simpleString(): str(scalar_of_spark(spark)) for spark in SPARK_TYPES
    }


def test_columns_that_are_read_have_these_types(spark):
    rows = table("type of a column")
    columns = [Column(ColumnId(1), name, parse_type(name)) for name in rows]
    values = [to_insertable(f.lit(None).cast(read_type(one)), one).alias(one.name) for one in columns]

    found = spark.range(1).select(values).schema

    assert {text: cells[0] for text, cells in rows.items()} == {
        field.name: field.dataType.simpleString() for field in found
    }
    assert set(rows) == SCALARS.keys() - {"unknown"}
    with pytest.raises(UnsupportedFeatureError):
        read_type(Column(ColumnId(1), "c", parse_type("unknown")))


def test_what_cannot_be_stored_is_listed():
    (listed,) = re.findall(r"Values of ([^.]*?) cannot be exchanged", TYPES)

    assert words(listed.replace("`", "").replace(" and ", ", ")) == NOT_STORABLE
