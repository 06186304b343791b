"""Names that no column has are told where that is certain; tests/spark asks Spark about the same texts."""

import pytest

from airflow_provider_ducklake.lake.sql.spark.conditions import unknown_column
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
