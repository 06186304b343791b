"""Names that no column has are told where that is certain; tests/spark asks Spark about the same texts."""

import pytest

from airflow_provider_ducklake.lake.errors import InvalidInputError
from airflow_provider_ducklake.lake.format.schema import new_columns
from airflow_provider_ducklake.lake.sql.spark.conditions import Spellings, unknown_column
from tests.unit.sql.conditions import ACCEPTED, COLUMNS, UNKNOWN


@pytest.mark.parametrize("condition", ACCEPTED)
def test_nothing_is_said_of_what_spark_can_run(condition):
    assert unknown_column(condition, COLUMNS, alias="target", is_alone=True) is None


@pytest.mark.parametrize(("condition", "name"), UNKNOWN.items())
def test_a_name_that_no_column_has_is_told(condition, name):
    assert unknown_column(condition, COLUMNS, alias="target", is_alone=True) == name


@pytest.mark.parametrize("condition", ["nosuch = 1", "source.nosuch = id", "a.b.c = 1"])
def test_beside_another_table_only_names_behind_the_alias_are_looked_at(condition):
    assert unknown_column(condition, COLUMNS, alias="target", is_alone=False) is None
    behind = f"target.nosuch = source.id AND {condition}"
    assert unknown_column(behind, COLUMNS, alias="target", is_alone=False) == "nosuch"


@pytest.mark.parametrize("condition", ["", "id +", "id = (", "(" * 5_000, "a 'b", "id = ? AND :x"])
def test_what_cannot_be_read_is_left_to_spark(condition):
    assert unknown_column(condition, COLUMNS, alias="target", is_alone=True) is None


TEXTS = new_columns(
    {
        "u": "uuid",
        "k": "time",
        "z": "timetz",
        "ns": "timestamp_ns",
        "zns": "timestamptz_ns",
        "s": "struct(u uuid)",
        "later": "time",
        "v": "varchar",
        "ts": "timestamp",
    }
)
UUID = "0190f3c1-0000-7000-8000-00000000000a"


def spellings(on: str = "") -> Spellings:
    return Spellings.of(TEXTS, "target", "source", on)


@pytest.mark.parametrize(
    "text",
    [
        f"u = '{UUID}'",
        f"(target.U) IN ('{UUID}', NULL)",
        "k BETWEEN '12:30:00.000000' AND '13:00:00.000000'",
        "k IS NULL OR k > later",
        "z = '12:30:00.000000+00'",
        "ns >= '2026-01-31 00:00:00.000000000' AND ns < 'infinity'",
        "zns = '2026-01-31 00:00:00.000000000+00'",
        f"s.u <> '{UUID}'",
        "CASE k WHEN '12:30:00.000000' THEN 1 ELSE 2 END = 1",
        "CASE WHEN v = 'a' THEN k ELSE '12:30' END IS NOT NULL",
        "lower(u) LIKE '0190%' AND CAST(ns AS TIMESTAMP_NTZ) > ts",
        "v = '12:30' AND ts > '2026-01-31'",
        "target.u = source.u AND target.k <=> source.k AND source.ns > target.ns",
        "source.x = '12:30'",
    ],
)
def test_comparisons_in_sparks_own_spelling_are_taken(text):
    spellings().check(text, "where")


@pytest.mark.parametrize(
    "text",
    [
        f"u = '{UUID.upper()}'",
        f"u IN ('{UUID}', '{UUID.replace('-', '')}')",
        "k > '12:30:00'",
        'NOT (target.`k` <= ("12:30"))',
        "k BETWEEN '12:30' AND '13:00:00.000000'",
        "'12:30:00' < k",
        "z = '14:30:00+02'",
        "ns > '2026-01-31'",
        "ns < TIMESTAMP_NTZ '2026-01-31 00:00:00'",
        "ns = ts",
        "zns = '2026-01-31 00:00:00.000000000'",
        "s.u = concat('a', v)",
        "CASE k WHEN '12:30' THEN 1 END = 1",
        "if(k = v, 1, 2) = 1",
        "target.u = source.x",
        "target.s.u = source.u",
    ],
)
def test_comparisons_of_other_spellings_are_refused(text):
    with pytest.raises(InvalidInputError, match=r"Spark has a \w+ as text and compares spellings"):
        spellings().check(text, "where")


def test_what_a_merge_says_is_equal_is_spelled_alike():
    same = spellings("target.u = source.x AND (source.`the time` = k)")

    same.check("source.x = target.u AND target.k = source.`the time`", "condition")
    with pytest.raises(InvalidInputError, match=r"compares k with source\.x"):
        same.check("target.k = source.x", "condition")
    with pytest.raises(InvalidInputError, match=r"set\['v'\]"):
        Spellings.of(TEXTS, "target").check("if(source.u = target.u, 1, 2)", "set['v']")


def test_a_column_may_have_the_name_of_the_source_or_of_the_table():
    named = Spellings.of(new_columns({"source": "time", "target": "uuid"}), "target", "source", "")

    named.check("source.source = target.source", "on")
    for text in ("source > '12:30'", "target.source > '12:30'", "target = 'X'"):
        with pytest.raises(InvalidInputError, match=r"compares (source|target) with"):
            named.check(text, "where")


def test_a_text_that_cannot_be_read_is_refused_only_where_it_names_such_a_column():
    spellings().check("v = (", "where")
    with pytest.raises(InvalidInputError, match="how it compares k cannot be checked"):
        spellings().check("k = (", "where")
