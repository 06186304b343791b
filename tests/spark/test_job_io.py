"""Requests and results survive the way through files, typed errors included."""

import dataclasses
import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from py4j.protocol import Py4JJavaError

from airflow_provider_ducklake.lake import errors
from airflow_provider_ducklake.lake.errors import SparkJobError, StorageError
from airflow_provider_ducklake.lake.format.files import ColumnStats, DataFile
from airflow_provider_ducklake.lake.format.partitioning import (
    PartitionField,
    Transform,
    TransformKind,
    parse_partition_by,
)
from airflow_provider_ducklake.lake.format.schema import TableSchema, new_columns
from airflow_provider_ducklake.lake.format.snapshots import ColumnId
from airflow_provider_ducklake.lake.format.types import ducklake_types as dl
from airflow_provider_ducklake.lake.planning.writing.write import ParquetSettings, WritePlan, WriteResult
from airflow_provider_ducklake.lake.spark.job import io as job_io
from airflow_provider_ducklake.lake.spark.job import request as jobs
from airflow_provider_ducklake.lake.spark.job import results
from airflow_provider_ducklake.lake.spark.job.codec import decode, dumps, encode, loads
from airflow_provider_ducklake.lake.spark.job.documents import reading
from airflow_provider_ducklake.lake.spark.job.errors import typed
from airflow_provider_ducklake.lake.spark.job.results import Batch, decode_error, encode_error, summary
from airflow_provider_ducklake.lake.spark.sessions.kind import map_in_arrow
from airflow_provider_ducklake.lake.storage.files import writing
from airflow_provider_ducklake.lake.storage.files.filesystem import storage_errors

JOB_ID = "0190f3c1-0000-7000-8000-000000000001"

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
names = texts.filter(bool)
scalars = st.sampled_from(
    ["int8", "uint64", "varchar", "json", "uuid", "timestamp_ns", "timestamptz", "blob"]
)
leaf_types = scalars.map(dl.ScalarType) | st.just(dl.DecimalType(18, 4))


def structs(children):
    unique = st.lists(names, min_size=1, max_size=3, unique_by=str.lower)
    return st.tuples(unique, st.lists(children, min_size=3, max_size=3)).map(
        lambda drawn: dl.StructType(tuple(dl.Field(*pair) for pair in zip(*drawn, strict=False)))
    )


types = st.recursive(
    leaf_types,
    lambda children: st.one_of(
        children.map(dl.ListType), structs(children), st.builds(dl.MapType, leaf_types, children)
    ),
    max_leaves=6,
)
schemas = st.lists(
    st.tuples(names, types), min_size=1, max_size=4, unique_by=lambda pair: pair[0].lower()
).map(lambda pairs: new_columns([dl.Field(*pair) for pair in pairs], not_null=[pairs[0][0]]))
column_ids = st.integers(1, 2**31).map(ColumnId)
transforms = st.sampled_from([Transform(TransformKind.DAY), Transform(TransformKind.BUCKET, 16)])
partition_fields = st.lists(st.builds(PartitionField, column_ids, transforms), max_size=3).map(tuple)
counts = st.none() | st.integers(0, 2**63 - 1)
stats = st.builds(
    ColumnStats,
    column_id=column_ids,
    value_count=counts,
    null_count=counts,
    min_value=st.none() | texts,
    max_value=st.none() | texts,
    contains_nan=st.none() | st.booleans(),
    column_size_bytes=counts,
    only_nan=st.booleans(),
    extra_stats=st.none() | texts,
)
data_files = st.builds(
    DataFile,
    path=names,
    record_count=st.integers(0, 2**40),
    file_size_bytes=st.integers(0, 2**40),
    footer_size=counts,
    column_stats=st.lists(stats, max_size=3, unique_by=lambda entry: entry.column_id).map(
        lambda entries: {entry.column_id: entry for entry in entries}
    ),
    partition_values=st.lists(st.none() | texts, max_size=3).map(tuple),
)
datasets = st.builds(
    jobs.Dataset,
    format=st.sampled_from(["csv", "jdbc"]),
    path=st.none() | texts,
    options=st.dictionaries(texts, texts, max_size=2),
    password_env=st.none() | texts,
)
sources = st.one_of(
    st.builds(jobs.DatasetSource, datasets),
    st.builds(jobs.SqlSource, texts, st.dictionaries(texts, datasets, max_size=2)),
    st.builds(jobs.TransformSource, texts, st.dictionaries(texts, datasets, max_size=2)),
)


def through_json(document):
    return loads(dumps(document), "a test's document")


@given(
    source=sources,
    schema=st.none() | schemas,
    fields=partition_fields,
    table=texts,
    partition_by=st.lists(texts, max_size=2).map(tuple),
)
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=50)
def test_a_request_reads_back_as_it_was(source, schema, fields, table, partition_by):
    plan = WritePlan(
        table,
        jobs.job_directory("/lake/t/", JOB_ID),
        schema,
        fields,
        partition_by,
        ParquetSettings(page_version="V1"),
    )
    request = jobs.JobRequest(JOB_ID, source, (plan,))

    assert decode(through_json(encode(request, jobs.JobRequest)), jobs.JobRequest) == request


@given(files=st.lists(data_files, max_size=3).map(tuple), schema=schemas, fields=partition_fields)
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=50)
def test_a_result_reads_back_as_it_was(files, schema, fields):
    result = WriteResult(schema, fields, files, 7, {"seconds": 1.5, "application_id": None})

    batch = Batch(**summary(result), query_id="q", batch_id=0, job_id=JOB_ID, data_files=files)
    back = decode(through_json(encode(batch, Batch)), Batch)

    assert back == batch
    assert WriteResult(**summary(back), data_files=back.data_files) == result


ERRORS = [
    errors.SchemaMismatchError("main.t", ["a is missing", "b is not in the table"]),
    errors.ColumnNotFoundError("x", "main.t", ["a", "b"]),
    errors.InvalidInputError("no"),
    errors.UnsupportedFeatureError("not yet"),
    errors.SparkJobError("broken"),
    errors.UntrustedValueError("part-00000.json", "/etc/passwd", "is not a file of the job"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_comes_back_as_the_same_exception(error):
    back = decode_error(through_json(encode_error(error)))

    assert type(back) is type(error)
    assert back.args == error.args
    assert str(back) == str(error)


def test_an_error_of_no_class_of_ours_comes_back_as_a_job_error():
    back = decode_error({"error": "SystemExit", "args": ["boo"]})

    assert type(back) is errors.SparkJobError


def test_a_long_error_is_shortened_where_it_is_written():
    error = errors.SchemaMismatchError("main.t", [f"column {n} is missing" for n in range(results.MOST + 5)])
    long = errors.InvalidInputError("x" * 1_000_000)

    mismatch, invalid = (decode_error(through_json(encode_error(one))) for one in (error, long))

    assert type(mismatch) is errors.SchemaMismatchError
    assert str(mismatch).count("is missing") == results.MOST
    assert "and 5 more" in str(mismatch)
    assert type(invalid) is errors.InvalidInputError
    assert len(str(invalid)) < results.LONGEST


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just("x" * 20_000),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=10,
)
CLASSES = sorted(name for name, found in vars(errors).items() if isinstance(found, type))
DOCUMENTS = st.fixed_dictionaries(
    {"error": st.sampled_from(CLASSES) | VALUES, "args": st.lists(VALUES, max_size=6) | VALUES}
)


@given(DOCUMENTS)
@example({"error": "FilesNotDeletedError", "args": [1, "abc"]})
@example({"error": "UnsupportedVersionError", "args": ["1", [1]]})
@example({"error": "SnapshotNotFoundError", "args": ["1", 1, 2, [3]]})
@example({"error": "SparkJobError", "args": ["x"] * 10_000})
@example({"error": "SchemaMismatchError", "args": ["t", ["x" * 5_000] * 5_000]})
@example({"error": "CatalogUnavailableError", "args": ["t", None]})
def test_whatever_lies_where_a_jobs_error_does_is_an_error_of_ours_with_a_text(document):
    try:
        with reading("_ERROR.json"):
            error = decode_error(document)
    except errors.SparkJobError as refused:
        error = refused

    assert isinstance(error, errors.DuckLakeError)
    assert len(str(error).encode()) < 3_000_000


def test_a_job_cannot_say_what_became_of_a_commit():
    said = encode_error(errors.TransactionConflictError("a", "b", "t", 3))

    assert type(decode_error(said)) is errors.SparkJobError


def make_request(directory: Path, job_id: str = JOB_ID) -> jobs.JobRequest:
    plan = WritePlan("main.t", jobs.job_directory(f"{directory}/", job_id), a_schema())
    return jobs.JobRequest(job_id, jobs.source_of("in.csv"), (plan,))


def a_schema() -> TableSchema:
    return new_columns({"a": dl.parse_type("int64")})


def a_result(request: jobs.JobRequest, count: int) -> WriteResult:
    files = tuple(DataFile(f"{request.directory}f{number}.parquet", 2, 10, 5) for number in range(count))
    return WriteResult(a_schema(), (), files, 2 * count, {})


def test_the_request_is_private_and_read_from_its_own_directory_only(tmp_path):
    request = make_request(tmp_path)

    uri = job_io.write_request(request)

    assert job_io.read_request(uri) == request
    assert stat.S_IMODE(Path(uri).stat().st_mode) == 0o600
    moved = tmp_path / "request.json"
    moved.write_bytes(Path(uri).read_bytes())
    with pytest.raises(errors.SparkJobError, match="lie in its own job's directory"):
        job_io.read_request(str(moved))


def test_many_files_lie_in_several_parts_and_come_back_in_order(tmp_path):
    request = make_request(tmp_path)
    result = a_result(request, job_io.FILES_PER_PART + 1)

    job_io.write_results(request, [result])

    assert (Path(request.directory) / "part-00001.json").exists()
    assert job_io.read_results(request) == (result,)


def of_somebody_else(done: Path) -> None:
    done.write_bytes(done.read_bytes().replace(JOB_ID.encode(), b"somebody-else"))


@pytest.mark.parametrize(
    ("name", "harm", "words"),
    [
        ("_DONE", Path.unlink, "_DONE does not exist"),
        ("_DONE", of_somebody_else, "somebody-else"),
        ("part-00000.json", Path.unlink, "is missing"),
    ],
)
def test_a_result_that_is_not_whole_or_of_another_job_is_refused(tmp_path, name, harm, words):
    request = make_request(tmp_path)
    job_io.write_results(request, [a_result(request, 1)])
    harm(Path(request.directory) / name)

    with pytest.raises(errors.SparkJobError, match=words):
        job_io.read_results(request)


def test_a_wrong_total_is_refused(tmp_path):
    request = make_request(tmp_path)
    job_io.write_results(request, [dataclasses.replace(a_result(request, 1), rows_written=3)])

    with pytest.raises(errors.SparkJobError, match="reported 3 rows, but its files hold 2"):
        job_io.read_results(request)


def test_another_version_of_the_format_is_refused(tmp_path):
    request = make_request(tmp_path)
    uri = Path(job_io.write_request(request))
    uri.write_text(json.dumps(json.loads(uri.read_text()) | {"v": 1}))

    with pytest.raises(errors.SparkJobError, match="same release"):
        job_io.read_request(str(uri))


def test_the_jobs_error_is_raised_by_the_reader(tmp_path):
    request = make_request(tmp_path)
    job_io.write_request(request)
    job_io.write_error(request, errors.SchemaMismatchError("main.t", ["a is missing"]))

    with pytest.raises(errors.SchemaMismatchError, match="a is missing"):
        job_io.read_results(request)


@pytest.fixture
def learn(monkeypatch):
    """Have this process have a key from some moment on."""
    monkeypatch.setattr(writing, "_known", {})
    monkeypatch.setattr(writing, "_drivers", writing._Drivers())
    monkeypatch.delenv(writing.VARIABLE, raising=False)
    return lambda directory: writing.learn(f"{directory}/", writing.new_key())


@pytest.mark.parametrize("forged", ["_DONE", "part-00000.json"])
def test_a_forged_document_on_an_encrypted_lake_is_not_taken(tmp_path, learn, forged):
    request = make_request(tmp_path)
    job_io.write_results(request, [a_result(request, 1)])
    plain = Path(request.directory + forged).read_bytes()
    learn(tmp_path)
    job_io.write_results(request, [a_result(request, 1)])
    assert len(job_io.read_results(request)) == 1
    Path(request.directory + forged).write_bytes(plain)

    with pytest.raises(errors.SparkJobError, match=f"{forged} is not sealed"):
        job_io.read_results(request)


def test_what_a_driver_without_the_key_left_is_sealed_for_the_task_that_commits_it(tmp_path, learn):
    request = make_request(tmp_path)
    job_io.write_results(request, [a_result(request, 1001)])
    learn(tmp_path)

    job_io.complete_results(request, [a_result(request, 1001)])

    assert [len(one.data_files) for one in job_io.read_results(request)] == [1001]
    written = [one.read_bytes()[:4] for one in Path(request.directory).iterdir()]
    assert written == [b"DLS2"] * 3


def test_a_job_given_up_by_its_operator_leaves_no_error_behind(tmp_path):
    request = make_request(tmp_path)

    job_io.write_error(request, errors.SparkJobError("the JVM was killed"))

    assert not Path(request.directory).exists()


def test_a_job_without_a_request_loses_its_own_directory_and_no_other(tmp_path):
    request = make_request(tmp_path)
    job_io.write_request(request)

    with pytest.raises(errors.UntrustedValueError, match="is not that of job"):
        job_io.delete_own_directory(str(tmp_path) + "/", request.job_id)
    job_io.delete_own_directory(request.directory, request.job_id)

    assert not Path(request.directory).exists()
    assert tmp_path.exists()


def test_cleaning_up_leaves_data_files_or_nothing(tmp_path):
    request = make_request(tmp_path)
    job_io.write_request(request)
    job_io.write_results(request, [a_result(request, 1)])
    directory = Path(request.directory)
    (directory / "a.parquet").touch()

    job_io.delete_job_files(request)
    assert [path.name for path in directory.iterdir()] == ["a.parquet"]

    job_io.delete_job_directories(request)
    assert not directory.exists()


def test_cleaning_up_takes_the_jobs_files_out_of_folders_of_partitions(tmp_path):
    schema = a_schema()
    directory = jobs.job_directory(f"{tmp_path}/", JOB_ID)
    plan = WritePlan("main.t", directory, schema, parse_partition_by(["a"], schema, "main.t"))
    request = jobs.JobRequest(JOB_ID, jobs.source_of("in.csv"), (plan,))
    folder = Path(plan.partition_folder(("1",)))
    folder.mkdir()
    names = [f"ducklake-{JOB_ID}-x.parquet", "ducklake-0190f3c1-0000-7000-8000-000000000099-x.parquet"]
    for name in names:
        (folder / name).touch()

    job_io.delete_job_directories(request)

    assert folder == tmp_path / "a=1"
    assert [path.name for path in folder.iterdir()] == names[1:]


@pytest.mark.parametrize(
    "source",
    [
        {"format": "xml", "path": "a"},
        {"format": "csv"},
        {"format": "jdbc", "options": {"dbtable": "t"}},
        {"format": "jdbc", "options": {"url": "jdbc:postgresql://h/d", "dbtable": "t", "password": "x"}},
        {"format": "jdbc", "options": {"url": "jdbc:postgresql://h/d?user=a&password=x", "dbtable": "t"}},
        {"path": "a.csv", "password_env": "X"},
        {"path": "a.csv", "sep": ";"},
        {"path": 3},
    ],
)
def test_a_source_that_cannot_be_meant_is_refused(source):
    with pytest.raises(errors.InvalidOptionError, match="source: "):
        jobs.source_of(source)


@pytest.mark.parametrize(
    "arguments",
    [{}, {"source": "a", "sql": "b"}, {"source": "a", "sources": {"b": "c"}}, {"transform": "no function"}],
)
def test_exactly_one_source_is_given(arguments):
    with pytest.raises(errors.InvalidInputError):
        jobs.source_of(**arguments)


def test_options_become_the_texts_that_spark_reads():
    source = jobs.source_of({"path": "a.CSV.gz", "options": {"header": True, "maxColumns": 3}})

    assert source == jobs.DatasetSource(
        jobs.Dataset("csv", "a.CSV.gz", {"header": "true", "maxColumns": "3"})
    )


def test_what_dag_files_load_of_jobs_is_light():
    modules = "request, package_zip"
    unwanted = {"pyspark", "pyarrow", "fsspec", "airflow", "sqlalchemy"}
    code = f"import sys; from airflow_provider_ducklake.lake.spark.job import {modules}\n"
    code += f"sys.exit(','.join({unwanted} & set(sys.modules)))"

    assert subprocess.run([sys.executable, "-c", code], check=False, capture_output=True).stderr == b"\n"


def test_of_batches_that_are_done_the_newest_keeps_a_record(tmp_path):
    checkpoint, folder = f"{tmp_path}/", tmp_path / "ducklake" / "q"
    folder.mkdir(parents=True)
    for name in ("2.json", "3.json", "4.json", "x.done", "5.done"):
        (folder / name).write_text("{}")

    job_io.finish_batches(checkpoint, "q", [2, 3])

    assert job_io.batch_ids(checkpoint, "q", is_staged=True) == [4]
    assert job_io.batch_ids(checkpoint, "q") == [4, 5]
    job_io.finish_batches(checkpoint, "q", [4, 6])
    assert [path.name for path in folder.iterdir()] == ["6.done"]


# --- which cause an error of Spark's names: its exceptions of Java, never the values in their messages ---

OUT_OF_MEMORY = "java.lang.OutOfMemoryError: Java heap space"


def said_of(spark, java_exception) -> str:
    """Return what becomes of an exception of Java that is the cause of another."""
    with pytest.raises(Py4JJavaError) as caught:
        spark._jvm.java.util.concurrent.CompletableFuture.failedFuture(java_exception).join()
    found = typed(caught.value)
    assert type(found) is SparkJobError
    return str(found)


@pytest.mark.classic_only("makes exceptions of Java")
def test_exceptions_behind_the_error_tell_the_cause_and_spark_is_quoted(spark):
    text = said_of(spark, spark._jvm.java.lang.OutOfMemoryError("Java heap space"))

    cause, said = text.split("\n", 1)
    assert cause == (
        f"Spark ran out of memory. Raise driver_memory or executor_memory. Spark says: {OUT_OF_MEMORY}"
    )
    assert said.startswith("  Py4JJavaError: An error occurred while calling")
    assert OUT_OF_MEMORY in said


@pytest.mark.classic_only("RDDs")
def test_a_worker_of_python_that_died_is_told(spark):
    with pytest.raises(Exception, match="Python worker exited unexpectedly") as caught:
        spark.sparkContext.range(1).foreach(lambda _: os._exit(1))

    assert str(typed(caught.value)).startswith(
        "A process of the job was killed, most often because it ran out of memory."
    )


def fills_the_disk(batches):
    with storage_errors("/data/x", "write"), Path("/dev/full").open("wb", buffering=0) as file:
        file.write(b"x")
    yield from batches


def fails_by_itself(batches):
    with Path("/dev/full").open("wb", buffering=0) as file:
        file.write(b"x")
    yield from batches


def test_a_full_disk_of_a_task_is_called_full(spark):
    rows = spark.range(1)
    with pytest.raises(Exception, match="the disk is full") as caught:
        map_in_arrow(rows, fills_the_disk, rows.schema).collect()

    found = typed(caught.value)
    assert type(found) is StorageError
    assert str(found).startswith("Cannot write /data/x: the disk is full. Make room there")


def test_what_python_says_of_another_error_of_a_task_comes_first(spark):
    rows = spark.range(1)
    with pytest.raises(Exception, match="No space left") as caught:
        map_in_arrow(rows, fails_by_itself, rows.schema).collect()

    found = typed(caught.value)
    assert type(found) is SparkJobError
    assert re.match(r"\w+: OSError: \[Errno 28\] No space left on device\n", str(found))


@pytest.mark.parametrize(
    "value", [OUT_OF_MEMORY, f"x\nCaused by: {OUT_OF_MEMORY}", f"{OUT_OF_MEMORY}\n", f"\n: {OUT_OF_MEMORY}"]
)
def test_values_of_rows_tell_no_cause(spark, value):
    rows = spark.createDataFrame([(value,)], "s string")
    for expression in ("CAST(s AS INT)", "raise_error(s)", "CAST(raise_error(s) AS INT) + rand()"):
        with pytest.raises(Exception, match="Java heap space") as caught:
            rows.selectExpr(expression).collect()

        assert "ran out of memory" not in str(typed(caught.value))


@pytest.mark.classic_only("makes exceptions of Java")
def test_files_and_programs_of_others_tell_no_cause(spark):
    jvm = spark._jvm

    assert "bucket" not in said_of(spark, jvm.java.nio.file.AccessDeniedException("/data/files/x"))
    assert "Python" not in said_of(spark, jvm.java.io.IOException('Cannot run program "jq": error=2, x'))


class NumberFormatException(Exception):  # noqa: N818 - Java's
    """As Python names one of Java's."""


@pytest.mark.parametrize(
    "error",
    [
        NumberFormatException(f"[CAST_INVALID_INPUT] The value '{OUT_OF_MEMORY}' of the type"),
        RuntimeError("java.nio.file.AccessDeniedException: s3a://x/y: software.amazon.awssdk"),
        OSError('Cannot run program "jq": error=2, No such file or directory'),
        RuntimeError("An error occurred (AccessDeniedException) when calling the GetSecretValue operation"),
    ],
)
def test_errors_of_users_own_python_tell_no_cause(error):
    assert str(typed(error)) == f"{type(error).__name__}: {error}"
