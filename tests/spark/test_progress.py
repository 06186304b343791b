"""Lines about a long action."""

import logging
import time

import pytest

from airflow_provider_ducklake.lake.spark.sessions import classic


@pytest.mark.classic_only("RDDs")
def test_a_long_action_says_how_far_it_is_and_a_short_one_nothing(spark):
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    classic.log.addHandler(handler)
    classic.log.setLevel(logging.INFO)
    try:
        with classic.progress_lines(spark, seconds=60):
            spark.range(1).count()
        assert lines == []
        with classic.progress_lines(spark, seconds=0.2):
            spark.sparkContext.parallelize(range(16), 4).map(lambda _: time.sleep(0.1)).collect()
    finally:
        classic.log.removeHandler(handler)
        classic.log.setLevel(logging.NOTSET)

    assert lines
    assert all(" of 4 tasks done, " in line for line in lines)
