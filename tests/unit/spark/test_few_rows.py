"""Which plans may be looked at for few rows, by Spark's explanation of them."""

import pytest

from airflow_provider_ducklake.lake.spark.writing.write_arrow import is_small

SMALL = (
    "Range (0, 1000, step=1, splits=Some(2)), Statistics(sizeInBytes=7.8 KiB, rowCount=1.00E+3)",
    "Relation [a#1] csv, Statistics(sizeInBytes=8.0 MiB)",
    "Project [a#1]\n+- Relation [a#1] csv, Statistics(sizeInBytes=8.0 EiB)".replace(
        "[a#1]\n", "[a#1], Statistics(sizeInBytes=1.0 B)\n"
    ),
    "Project [Statistics(sizeInBytes=8.0 EiB) AS a#1], Statistics(sizeInBytes=1.0 B)",
)
LARGE = (
    "Relation [a#1] csv, Statistics(sizeInBytes=8.1 MiB)",
    "LogicalRDD [a#1], false, Statistics(sizeInBytes=8.0 EiB)",
    "Join Inner, Statistics(sizeInBytes=1.23E+24 B)",
    "Project [a#1], Statistics(sizeInBytes=1.0 B)\n+- Generate explode(b#2), Statistics(sizeInBytes=1.0 B)",
    "MapInArrow run(document#1)#2, [a#3], Statistics(sizeInBytes=8.0 B)\n+- LocalRelation [document#1]",
    "Project [a#1], Statistics(sizeInBytes=1.0 B)\n:  +- BatchEvalPython [f(a#1)#2], [pythonUDF0#3]",
    "CollectMetrics seen, [count(1) AS n#1], Statistics(sizeInBytes=1.0 B)",
    "Project [a#1]",
)


@pytest.mark.parametrize("plan", SMALL)
def test_a_plan_of_few_bytes_is_looked_at(plan):
    assert is_small(f"== Optimized Logical Plan ==\n{plan}\n\n== Physical Plan ==\nGenerate nothing\n")


@pytest.mark.parametrize("plan", LARGE)
def test_a_plan_of_many_bytes_or_unknown_ones_is_not(plan):
    assert not is_small(f"== Optimized Logical Plan ==\n{plan}\n\n== Physical Plan ==\nRange (0, 1)\n")


def test_an_explanation_in_other_words_says_nothing():
    assert not is_small("Plan: tiny")
