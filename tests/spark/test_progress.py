"""Lines about a long action."""

import logging
import time

import pytest

from airflow_provider_ducklake.lake.spark.sessions import classic as progress


@pytest.mark.classic_only("RDDs")
def test_a_long_action_says_how_far_it_is_and_a_short_one_nothing(spark):
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    progress.log.addHandler(handler)
    progress.log.setLevel(logging.INFO)
    try:
        with progress.progress_lines(spark, seconds=60):
            spark.range(1).count()
        assert lines == []
        with progress.progress_lines(spark, seconds=0.2):
            spark.sparkContext.parallelize(range(16), 4).map(lambda _: time.sleep(0.1)).collect()
    finally:
        progress.log.removeHandler(handler)
        progress.log.setLevel(logging.NOTSET)

    assert lines
    assert all(" of 4 tasks done, " in line for line in lines)
