"""What a task shows of Spark's output, and which sentence it makes of it, by outputs of real failures.

`tests/spark/record_failed_logs.py` provoked them.
"""

from pathlib import Path

import pytest

from airflow_provider_ducklake.spark.causes import OF_ERRORS, cause_of
from airflow_provider_ducklake.spark.job_log import JobLog

RECORDS = Path(__file__).parents[2] / "spark" / "failed_logs"
TOLD = {
    "no_java": ("found no Java", "JAVA_HOME is not set"),
    "wrong_java_home": ("found no Java", "bin/java: No such file or directory"),
    "old_java": ("too old", "java.lang.UnsupportedClassVersionError"),
    "no_master": ("No Spark master answers", "All masters are unresponsive! Giving up."),
    "cluster_local": ("client mode only", 'Cluster deploy mode is not compatible with master "local"'),
    "cluster_standalone": ("client mode only", "Cluster deploy mode is currently not supported for python"),
    "no_yarn": ("Set HADOOP_CONF_DIR", "HADOOP_CONF_DIR or YARN_CONF_DIR must be set"),
    "no_such_package": (
        "cannot fetch a package",
        "unresolved dependency: org.apache.hadoop#hadoop-aws;0.0.1",
    ),
    "no_python": ("do not find the Python", 'Cannot run program "/opt/no/python"'),
    "other_python": ("different Pythons", "[PYTHON_VERSION_MISMATCH]"),
    "old_python": ("cannot run PySpark", "Error from python worker"),
    "heap": ("ran out of memory", "java.lang.OutOfMemoryError: Java heap space"),
    "killed_worker": ("process of the job was killed", "Python worker exited unexpectedly"),
    "killed_executor": ("process of the job was killed", "code 137"),
    "no_request": ("The Spark driver cannot read /opt/job", "there is no such file"),
}
KILLED = ("killed_driver", "killed_jvm")


def lines_of(record: str) -> list[str]:
    return (RECORDS / f"{record}.txt").read_text().splitlines(keepends=True)


def heard(record: str) -> JobLog:
    log = JobLog()
    *lines, _ = lines_of(record)
    list(log.shown(lines))
    return log


def test_each_record_is_looked_at():
    assert {path.stem for path in RECORDS.glob("*.txt")} == {*TOLD, *KILLED}


@pytest.mark.parametrize("record", TOLD)
def test_the_cause_stands_first_and_then_what_spark_said(record):
    sentence, line = TOLD[record]

    cause = heard(record).cause()

    assert cause.index(sentence) < cause.index(line) < 400
    assert len(cause) < 700
    assert "\n" not in cause


@pytest.mark.parametrize("record", KILLED)
def test_a_driver_that_was_killed_is_known_by_its_exit_code(record):
    log, end = heard(record), lines_of(record)[-1]

    assert log.cause() is None
    assert log.end(f"Cannot execute: spark-submit main.py. {end}").startswith("The Spark driver was killed")


def test_a_job_without_a_reason_ends_with_its_last_lines():
    log = JobLog()
    list(log.shown(["one\n", "two\n"]))

    assert log.end("Cannot execute: spark-submit. Error code is: 3.\nmore") == (
        "The Spark job failed and left no reason. Its log (exit code 3) ends with:\none\ntwo"
    )


def test_a_master_that_cannot_be_reached_is_told_before_the_context_that_it_stopped():
    error = "Py4JJavaError: java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext."

    assert heard("no_master").cause_before_session().startswith("No Spark master answers")
    assert cause_of([error], OF_ERRORS) is None


def test_what_a_running_job_meets_is_left_to_the_job():
    assert heard("killed_worker").cause() is not None
    assert heard("killed_worker").cause_before_session() is None


def test_what_every_job_prints_is_not_shown():
    shown = list(JobLog().shown(lines_of("killed_driver")))

    assert [line.split(" INFO ")[-1] for line in shown] == [
        "SparkContext: Running Spark version 4.2.0\n",
        "SparkContext: Java version 17.0.15+6-Debian-1deb12u1\n",
        "Error code is: 137.\n",
    ]


def test_what_users_print_is_shown():
    lines = [
        "/opt/dags/cleaning.py:7: FutureWarning: orders will go\n",
        "  warnings.warn('orders will go', FutureWarning)\n",
        "/opt/pyspark/utils.py:64: FutureWarning: PySpark does not yet fully support pandas >= 3.0.0.\n",
        "  require_minimum_pandas_version()\n",
        "  indented by the user\n",
        "found 3 rows in orders\n",
        "-----\n",
        "| id | price |\n",
        "26/11/22 15:15:00 WARN TaskSetManager: Lost task 0.0 in stage 0.0\n",
        "\n",
    ]

    assert list(JobLog().shown(lines)) == [*lines[:2], *lines[4:]]
