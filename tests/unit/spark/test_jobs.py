"""What a task shows of Spark's output, and which sentence it makes of it; what is refused before a job.

The outputs are of real failures, which `tests/spark/record_failed_logs.py` provoked.
"""

from pathlib import Path

import pytest

from airflow_provider_ducklake.lake import errors
from airflow_provider_ducklake.lake.spark.job.io import query_id
from airflow_provider_ducklake.lake.spark.job.request import (
    OverwriteSource,
    RowChangeSource,
    StreamSource,
    datasets_of,
    source_of,
)
from airflow_provider_ducklake.lake.spark.output.log import OF_EXCEPTIONS, JobLog, cause_in
from airflow_provider_ducklake.lake.spark.writing.write_arrow import is_small

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
        "cannot download one of packages",
        "unresolved dependency: org.apache.hadoop#hadoop-aws;0.0.1",
    ),
    "no_python": ("cannot find the Python", 'Cannot run program "/opt/no/python"'),
    "other_python": ("different Python versions", "[PYTHON_VERSION_MISMATCH]"),
    "no_pyarrow": ("has no pyarrow", "ModuleNotFoundError"),
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

    first, *rest = heard(record).cause().splitlines()

    assert first.index(sentence) < first.index(line) < 400
    assert len(first) < 700
    assert len("".join(rest)) < 2_200


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
    log = heard("no_master")

    assert log.lost_master(STOPPED).startswith("No Spark master answers")
    assert log.cause() == log.lost_master(STOPPED)
    assert [record for record in TOLD if heard(record).lost_master(STOPPED)] == ["no_master"]


def test_a_row_that_looks_like_a_lost_master_does_not_choose_the_error_of_a_job():
    log = heard("no_master")
    error = (
        "SparkJobError: NumberFormatException: the value 'a\n: Cannot call methods on a stopped SparkContext'"
    )
    list(log.shown([f"15:16:10 ERROR {error}\n"]))

    assert log.cause().startswith("NumberFormatException: the value 'a")
    assert log.lost_master(error) is None


def test_a_cluster_that_starts_no_executors_is_told():
    log = JobLog()
    said = "Application has been killed. Reason: Master removed our application: FAILED"
    list(log.shown([DRIVER, f"26/11/23 21:50:49 ERROR StandaloneSchedulerBackend: {said}\n"]))

    assert log.cause().startswith("The cluster could start no executors")
    assert log.lost_master(STOPPED) == log.cause()


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("OOMKilled", "The driver's pod ran out of memory"),
        ("Error", "The driver's pod failed before"),
        ("Completed", None),
    ],
)
def test_a_pod_that_ended_is_told_by_its_reason(reason, said):
    log = JobLog()
    list(log.shown(["\t\t exit code: 1\n", f"\t\t termination reason: {reason}\n"]))

    assert (log.cause() or "None").startswith(str(said))


def test_the_exit_code_of_a_pod_counts_before_that_of_its_submission():
    log = JobLog()
    list(log.shown(["last\n"]))

    end = log.end("Cannot execute: x. Error code is: 0. Kubernetes spark exit code is: 2\nmore")

    assert end == "The Spark job failed and left no reason. Its log (exit code 2) ends with:\nlast"


DRIVER = "15:16:03 INFO Reading what to do from /opt/job/request.json\n"
LOST = "ExecutorLostFailure (executor 2 exited caused by one of the running tasks) Reason: "
STOPPED = "SparkException: Job 3 cancelled because SparkContext was shut down"
OF_OTHERS = [
    [DRIVER, "JAVA_HOME is not set\n"],
    ["java.lang.RuntimeException: the log says: JAVA_HOME is not set\n"],
    [DRIVER, "Found /opt/java/bin/java: No such file or directory, in row 7\n"],
    ["\tServer access error at url https://repo.corp/x.xml (java.net.SocketTimeoutException)\n", DRIVER],
    ["26/11/22 15:16:01 INFO Repo: unresolved dependency: org.acme#udf;1.0 in row 7\n"],
    ["26/11/22 15:16:01 INFO x: com.acme.Udf UnsupportedClassVersionError: com/acme/Udf has been compiled\n"],
    ["\tjava.lang.UnsupportedClassVersionError: com/acme/Udf has been compiled by a more recent version\n"],
    [DRIVER, "checking: All masters are unresponsive! Giving up.\n"],
    [DRIVER, "HADOOP_CONF_DIR or YARN_CONF_DIR must be set\n"],
    [
        DRIVER,
        f"26/11/22 15:16:09 WARN TaskSetManager: Lost task 3.0 in stage 1.0 (TID 3): {LOST}code 137\n",
        "Traceback (most recent call last):\n",
        "SystemExit: 3\n",
    ],
    [
        DRIVER,
        "26/11/22 15:16:09 ERROR Executor: Exception in task 0.0 in stage 0.0 (TID 0)\n",
        "java.lang.OutOfMemoryError: Java heap space\n",
    ],
    [DRIVER, "java.nio.file.AccessDeniedException: /data/files/x\n"],
    [DRIVER, "15:16:09 ERROR ValueError: of users' own logging\n"],
]


@pytest.mark.parametrize("lines", OF_OTHERS)
def test_what_did_not_kill_the_job_is_no_cause(lines):
    log = JobLog()
    list(log.shown(lines))

    assert log.cause() is None
    assert log.lost_master(STOPPED) is None


def test_the_error_that_the_driver_names_is_told_as_it_says_it():
    error = "NumberFormatException: [CAST_INVALID_INPUT] The value 'JAVA_HOME is not set' of the type"
    lines = [DRIVER, f"15:16:09 ERROR SparkJobError: {error}\n", '  "STRING"\n', "26/11/22 15:16:09 INFO x\n"]
    log = JobLog()
    list(log.shown(lines))

    assert log.cause() == f'{error}\n"STRING"'
    list(log.shown(["15:16:10 ERROR SchemaMismatchError: of main.t\n"]))
    assert log.cause() == "SchemaMismatchError: of main.t"


OF_TASK = (
    "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times, "
    "most recent failure: Lost task 0.3 in stage 1.0 (TID 7) (10.0.0.1 executor 2): "
)
BUCKET = "s3a://landing/in.csv: getFileStatus on s3a://landing/in.csv: software.amazon.awssdk.S3Exception: x"
UDF = 'Traceback (most recent call last):\n  File "udf.py", line 2, in f\nValueError: '
VALUE = (
    "org.apache.spark.SparkNumberFormatException: [CAST_INVALID_INPUT] The value '{}' of the type \"STRING\""
)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("java.lang.OutOfMemoryError: Java heap space\n\tat x", "ran out of memory"),
        ("java.lang.OutOfMemoryError: unable to create native thread", None),
        (VALUE.format("java.lang.OutOfMemoryError: Java heap space"), None),
        (VALUE.format("x\nCaused by: java.lang.OutOfMemoryError: Java heap space\n"), None),
        (VALUE.format(OF_TASK + "java.lang.OutOfMemoryError: Java heap space"), None),
        (
            LOST + "Container killed by YARN for exceeding physical memory limits. 5 GB used",
            "ran out of memory",
        ),
        (LOST + "Command exited with code 137\nDriver stacktrace:", "process of the job was killed"),
        (
            LOST + "\nThe executor with id 2 exited with exit code 137(SIGKILL).\n",
            "process of the job was killed",
        ),
        (LOST + "worker decommissioned", None),
        (
            'java.io.IOException: Cannot run program "/opt/no/python": error=2, No such file',
            "cannot find the Python",
        ),
        ('java.io.IOException: Cannot run program "jq": error=2, No such file or directory', None),
        ("org.apache.spark.SparkException: \nError from python worker:\n  Traceback", "cannot run PySpark"),
        (f"org.apache.spark.api.python.PythonException: {UDF}RuntimeError: [PYTHON_VERSION_MISMATCH]", None),
        ("java.nio.file.AccessDeniedException: /data/files/main/s3a/amazonaws", None),
        (f"java.nio.file.AccessDeniedException: {BUCKET}", "has no access to a bucket"),
        (
            "org.apache.hadoop.fs.s3a.auth.NoAuthWithAWSException: No AWS Credentials",
            "has no access to a bucket",
        ),
        (
            "org.apache.hadoop.fs.s3a.UnknownStoreException: `s3a://gone/x': getFileStatus on s3a://gone/x",
            "A bucket does not exist",
        ),
        (
            "org.apache.hadoop.fs.s3a.AWSRedirectException: Received permanent redirect response",
            "A bucket is in another region",
        ),
        (
            "org.apache.hadoop.fs.s3a.AWSBadRequestException: getFileStatus on s3a://b/x: Bad Request",
            "have expired, or the bucket is in another region",
        ),
        (
            "org.apache.hadoop.fs.s3a.AWSServiceThrottledException: getFileStatus on s3a://b/x: 503",
            "is overloaded",
        ),
        (
            "org.apache.hadoop.fs.s3a.HttpChannelEOFException: getFileStatus on s3a://b/x: failed to respond",
            "does not answer Spark",
        ),
        ("org.apache.arrow.vector.util.OversizedAllocationException: Memory required", "maxBytesPerBatch"),
        ("org.apache.spark.SparkException: Could not parse Master URL: 'x'", "No Spark master"),
    ],
)
def test_a_cause_is_told_by_the_class_of_an_exception_and_by_no_value(text, told):
    for whole in (text, OF_TASK + text):
        cause = cause_in(["java.lang.RuntimeException: x", whole], OF_EXCEPTIONS)

        assert cause is None if told is None else told in cause


def test_what_every_job_prints_is_not_shown():
    shown = list(JobLog().shown(lines_of("killed_driver")))

    assert [line.split(" INFO ")[-1] for line in shown] == [
        "SparkContext: Running Spark version 4.2.0\n",
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
        "downloading https://api.example.com/orders.json\n",
        "3 artifacts copied to the landing zone\n",
        "  | 2026 | 7 |\n",
        "-----\n",
        "| id | price |\n",
        "26/11/22 15:15:00 WARN TaskSetManager: Lost task 0.0 in stage 0.0\n",
        "\n",
    ]

    assert list(JobLog().shown([DRIVER, *lines])) == [DRIVER, *lines[:2], *lines[4:]]


# --- what is refused of a source before any job ---

PLACE = {"sources": {"o": "/in/o.csv"}}


@pytest.mark.parametrize(
    "options", [{"url": "jdbc:x", "password": "pa55"}, {"url": "jdbc:x://h/d?password=pa55"}]
)
def test_a_password_in_a_source_is_answered_by_its_connection(options):
    with pytest.raises(errors.InvalidOptionError, match="give it as the source's conn_id") as caught:
        source_of({"format": "jdbc", "options": options})

    assert "password_env" not in str(caught.value)


def test_an_unknown_key_is_answered_by_those_of_the_guide():
    with pytest.raises(errors.InvalidOptionError, match="its keys are format, path, options and conn_id"):
        source_of({"path": "a.csv", "header": True})


@pytest.mark.parametrize("path", ["", "None"])
def test_a_path_of_which_a_template_made_nothing_says_so(path):
    with pytest.raises(errors.InvalidInputError, match=f"source is '{path}': its template rendered no value"):
        source_of(path)
    with pytest.raises(
        errors.InvalidInputError, match=r"sources\['o'\] is .*: its template rendered no value"
    ):
        source_of(sql="SELECT 1", sources={"o": {"format": "csv", "path": path}})


def test_no_source_at_all_says_so():
    with pytest.raises(errors.InvalidInputError, match="source is None: its template rendered no value"):
        source_of(None)


def test_sources_of_a_query_whose_names_differ_by_case_only_are_refused():
    two = {"orders": "a.csv", "Orders": "b.csv"}

    with pytest.raises(
        errors.InvalidInputError, match="'orders' and 'Orders', which are the same name in Spark SQL"
    ):
        source_of(sql="SELECT * FROM orders", sources=two)
    assert datasets_of(source_of(transform="a:f", sources=two)).keys() == {
        "sources['orders']",
        "sources['Orders']",
    }


def test_the_datasets_of_each_source_have_the_names_of_its_errors():
    by_name = source_of(sql="SELECT 1", **PLACE)
    stream = StreamSource(source_of(transform="a:f", **PLACE), "/checkpoint/", "id")

    assert list(datasets_of(source_of("/in/o.csv"))) == ["source"]
    for source in (by_name, stream, OverwriteSource(by_name, None), RowChangeSource(None, by_name)):
        assert {name: one.path for name, one in datasets_of(source).items()} == {"sources['o']": "/in/o.csv"}
    assert datasets_of(RowChangeSource(None)) == {}


@pytest.mark.parametrize(
    "content", ["[" * 60_000, '{"id": %s}' % ("[" * 30_000 + "]" * 30_000), "[" * 70_000]
)
def test_sparks_file_in_a_checkpoint_may_hold_anything(tmp_path, content):
    (tmp_path / "metadata").write_text(content)

    with pytest.raises((errors.SparkJobError, errors.StorageError), match="metadata"):
        query_id(f"{tmp_path}/")


# --- which plans may be looked at for few rows ---

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
