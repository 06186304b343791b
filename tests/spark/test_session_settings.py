"""Jobs under the settings of users' sessions, in zones with summer time: rows and partitions are DuckDB's."""

import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import SparkConf
from pyspark.sql import SparkSession

from airflow_provider_ducklake.lake.errors import StorageError
from airflow_provider_ducklake.lake.spark.jobs.run import unreadable_request
from airflow_provider_ducklake.lake.spark.sessions.classic import own_settings
from airflow_provider_ducklake.lake.spark.sessions.settings import prepare, reach_buckets, s3a_settings
from airflow_provider_ducklake.lake.storage.files.filesystem import address_as_environment, as_environment
from airflow_provider_ducklake.lake.writes.arguments import InsertChoice, InsertMode
from tests.spark.inserting import insert
from tests.spark.test_row_changes import Twins, delete, update

APPEND, PARTITIONS = InsertChoice(), InsertChoice(InsertMode.OVERWRITE_PARTITIONS)
# of each zone: moments of the night that has times twice and of the one that lacks some, half an hour apart
NIGHTS = {
    "America/New_York": ("2024-11-03 04:30", "2024-03-10 06:00"),
    "Europe/Berlin": ("2024-10-27 00:00", "2024-03-31 00:00"),
    "Australia/Lord_Howe": ("2024-04-06 14:00", "2024-10-05 14:30"),
}
LONG_AGO = (
    "1969-12-31 23:30",
    "1582-10-04 12:00",
    "1582-10-15 00:00",
    "1500-02-28 23:59",
    "0001-01-01 00:00",
)
SETTINGS = {
    "spark.sql.adaptive.enabled": ["false"],
    "spark.sql.ansi.doubleQuotedIdentifiers": ["true"],
    "spark.sql.ansi.enabled": ["true", "false"],
    "spark.sql.ansi.enforceReservedKeywords": ["true"],
    "spark.sql.autoBroadcastJoinThreshold": ["-1", "1g"],
    "spark.sql.caseSensitive": ["true"],
    "spark.sql.codegen.wholeStage": ["false"],
    "spark.sql.constraintPropagation.enabled": ["false"],
    "spark.sql.crossJoin.enabled": ["false"],
    "spark.sql.datetime.java8API.enabled": ["true"],
    "spark.sql.decimalOperations.allowPrecisionLoss": ["false"],
    "spark.sql.execution.arrow.maxRecordsPerBatch": ["3"],
    "spark.sql.execution.arrow.useLargeVarTypes": ["true"],
    "spark.sql.files.ignoreMissingFiles": ["true"],
    "spark.sql.files.maxRecordsPerFile": ["2"],
    "spark.sql.legacy.castComplexTypesToString.enabled": ["true"],
    "spark.sql.legacy.charVarcharAsString": ["true"],
    "spark.sql.legacy.interval.enabled": ["true"],
    "spark.sql.legacy.parquet.nanosAsLong": ["false"],
    "spark.sql.legacy.timeParserPolicy": ["LEGACY", "EXCEPTION"],
    "spark.sql.mapKeyDedupPolicy": ["LAST_WIN"],
    "spark.sql.optimizer.dynamicPartitionPruning.enabled": ["false"],
    "spark.sql.parquet.aggregatePushdown": ["true"],
    "spark.sql.parquet.binaryAsString": ["true"],
    "spark.sql.parquet.compression.codec": ["gzip"],
    "spark.sql.parquet.datetimeRebaseModeInRead": ["LEGACY", "EXCEPTION"],
    "spark.sql.parquet.datetimeRebaseModeInWrite": ["LEGACY", "EXCEPTION"],
    "spark.sql.parquet.enableVectorizedReader": ["false"],
    "spark.sql.parquet.fieldId.read.enabled": ["false"],
    "spark.sql.parquet.fieldId.write.enabled": ["false"],
    "spark.sql.parquet.filterPushdown": ["false"],
    "spark.sql.parquet.inferTimestampNTZ.enabled": ["false"],
    "spark.sql.parquet.int96AsTimestamp": ["false"],
    "spark.sql.parquet.int96RebaseModeInWrite": ["LEGACY"],
    "spark.sql.parquet.mergeSchema": ["true"],
    "spark.sql.parquet.outputTimestampType": ["INT96", "TIMESTAMP_MILLIS"],
    "spark.sql.parquet.recordLevelFilter.enabled": ["true"],
    "spark.sql.parquet.writeLegacyFormat": ["true"],
    "spark.sql.parser.escapedStringLiterals": ["true"],
    "spark.sql.parser.quotedRegexColumnNames": ["true"],
    "spark.sql.shuffle.partitions": ["1", "7"],
    "spark.sql.sources.partitionColumnTypeInference.enabled": ["false"],
    "spark.sql.sources.partitionOverwriteMode": ["dynamic"],
    "spark.sql.sources.useV1SourceList": ["", "avro,csv"],
    "spark.sql.storeAssignmentPolicy": ["LEGACY", "STRICT"],
    "spark.sql.subexpressionElimination.enabled": ["false"],
    "spark.sql.timestampType": ["TIMESTAMP_NTZ", "TIMESTAMP_LTZ"],
}
COLUMNS = (
    "id BIGINT, d DATE, ts TIMESTAMP, tz TIMESTAMPTZ, s VARCHAR, b BLOB, n DECIMAL(9, 2), ns TIMESTAMP_NS, "
    "m MAP(VARCHAR, TIMESTAMPTZ)"
)
IN_SPARK = (
    "id BIGINT, d DATE, ts TIMESTAMP_NTZ, tz TIMESTAMP_LTZ, s STRING, b BINARY, n DECIMAL(9, 2), "
    "ns TIMESTAMP_NTZ, m MAP<STRING, TIMESTAMP_LTZ>"
)
# partition keys; those by which partitions are overwritten, too, have no hashes in them
KEYS = (
    ("tz",),
    ("d",),
    ("year(tz)", "month(tz)", "day(tz)", "hour(tz)"),
    ("year(ts)", "month(ts)", "day(ts)", "hour(ts)"),
    ("s", "ts"),
    ("ns", "hour(tz)", "tz"),
    ("year(d)", "bucket(3, tz)"),
    ("bucket(5, ts)", "bucket(5, d)", "bucket(5, ns)", "bucket(5, b)"),
)
ROUNDS = {"ci": 1, "full": 12}


@contextmanager
def session_with(new_session: Callable[[], SparkSession], settings: dict[str, str]) -> Iterator[SparkSession]:
    """Give a session of the user's settings, prepared as a job prepares its own."""
    session = new_session()
    for key, value in settings.items():
        session.conf.set(key, value)
    prepare(session)
    yield session


def drawn_settings(choose: random.Random) -> dict[str, str]:
    names = choose.sample(sorted(SETTINGS), len(SETTINGS) // 3)
    return {name: choose.choice(SETTINGS[name]) for name in names}


def micros_of(text: str) -> int:
    moment = datetime.strptime(text, "%Y-%m-%d %H:%M").replace(tzinfo=UTC)
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)).days * 86_400_000_000 + (
        moment.hour * 60 + moment.minute
    ) * 60_000_000


def drawn_moments(zone: str, choose: random.Random, count: int) -> list[int]:
    """Return microseconds since 1970: of nights of the zone's, of long ago, and of any time."""
    nights = [micros_of(text) + half * 1_800_000_000 for text in NIGHTS[zone] for half in range(6)]
    others = [micros_of(text) for text in LONG_AGO]
    drawn = [choose.randrange(-62_135_596_800_000_000, 253_402_300_000_000_000) for _ in range(count)]
    return choose.sample([*nights, *nights, *others, *drawn], count)


def drawn_rows(zone: str, choose: random.Random, start: int, count: int) -> pa.Table:
    moments = drawn_moments(zone, choose, count)
    near = [moment % (200 * 365 * 86_400_000_000) - 60 * 365 * 86_400_000_000 for moment in moments]
    columns = {
        "id": pa.array(range(start, start + count), pa.int64()),
        "d": pa.array([moment // 86_400_000_000 for moment in moments], pa.int32()).cast(pa.date32()),
        "ts": pa.array([None if moment % 7 == 0 else moment for moment in moments], pa.timestamp("us")),
        "tz": pa.array(
            [None if moment % 11 == 0 else moment for moment in moments], pa.timestamp("us", "UTC")
        ),
        "s": pa.array([choose.choice(["a", "Ä", "", None]) for _ in moments], pa.string()),
        "b": pa.array([choose.choice([b"", b"\xff\x00", None]) for _ in moments], pa.binary()),
        "n": pa.array(range(count), pa.int64()).cast(pa.decimal128(19, 0)).cast(pa.decimal128(9, 2)),
        "ns": pa.array(near, pa.timestamp("us")),
        "m": pa.array(
            [[("k", moment)] for moment in moments], pa.map_(pa.string(), pa.timestamp("us", "UTC"))
        ),
    }
    return pa.table(columns)


class Round:
    """Two lakes with one history: DuckDB's, and one of jobs under drawn settings."""

    def __init__(self, twins: Twins, session: SparkSession, zone: str, choose: random.Random) -> None:
        self.twins, self.session, self.zone, self.choose = twins, session, zone, choose
        self.keys = choose.choice(KEYS)
        self.next_id = 0

    def make_table(self) -> None:
        self.twins.sql(f"CREATE TABLE t ({COLUMNS})")
        self.twins.sql(f"ALTER TABLE t SET PARTITIONED BY ({', '.join(self.keys)})")

    def insert(self, count: int, choice: InsertChoice = APPEND) -> None:
        rows = drawn_rows(self.zone, self.choose, self.next_id, count)
        self.next_id += count
        before, head = self.twins.row_ids(), self.twins.head()
        self.twins.theirs.raw.register("rows", rows)
        self.twins.theirs.sql(f"BEGIN; {self._replaced(choice)} INSERT INTO t FROM rows; COMMIT")
        insert(self.twins.lake, self.session.createDataFrame(rows, IN_SPARK), choice)
        self.twins.assert_same(before, head)

    def _replaced(self, choice: InsertChoice) -> str:
        if choice is APPEND:
            return ""
        same = " AND ".join(
            f"{key.replace('(', '(t.') if '(' in key else f't.{key}'} IS NOT DISTINCT FROM "
            f"{key.replace('(', '(rows.') if '(' in key else f'rows.{key}'}"
            for key in self.keys
        )
        return f"DELETE FROM t WHERE EXISTS (FROM rows WHERE {same});"

    def change(self, folder: Path) -> None:
        twins, source = self.twins, folder / "source.parquet"
        twins.change_both(
            self.session,
            "UPDATE t SET n = n + 1, s = 'it''s' "
            "WHERE tz > TIMESTAMPTZ '2024-03-10 06:30:00+00' OR d IS NULL",
            **update(
                "tz > TIMESTAMP_LTZ '2024-03-10 06:30:00Z' OR d IS NULL",
                n="CAST(n + 1 AS DECIMAL(9, 2))",
                s="concat('it', chr(39), 's')",
            ),
        )
        twins.theirs.sql(
            f"COPY (SELECT i AS id, 'm' || i AS s FROM range(0, {self.next_id + 4}, 2) r(i)) TO '{source}'"
        )
        twins.change_both(
            self.session,
            f"MERGE INTO t USING read_parquet('{source}') s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET s = s.s WHEN NOT MATCHED THEN INSERT (id, s) VALUES (s.id, s.s)",
            source=str(source),
            on="target.id = source.id",
            when_matched=({"update": {"s": "source.s"}},),
            when_not_matched=({"insert": {"id": "source.id", "s": "source.s"}},),
        )
        self.next_id += 4
        twins.change_both(
            self.session, "DELETE FROM t WHERE ts < '1970-01-01'", **delete("ts < TIMESTAMP_NTZ '1970-01-01'")
        )

    def assert_same_partitions(self) -> None:
        ours, theirs = (sorted(lake.sql(VALUES_OF_ROWS), key=repr) for lake in self.twins.lakes)
        assert ours == theirs
        assert self.twins.lake.verify() == []


VALUES_OF_ROWS = """SELECT id, partition_key_index, partition_value
    FROM __ducklake_metadata_lake.ducklake_file_partition_value
    JOIN __ducklake_metadata_lake.ducklake_data_file USING (data_file_id)
    JOIN (SELECT id, parse_filename(filename) AS name FROM t) ON path LIKE '%' || name"""


@pytest.mark.filterwarnings("ignore:The SQL config:UserWarning")  # a server warns of what the user set
@pytest.mark.parametrize("zone", NIGHTS)
def test_what_jobs_write_does_not_depend_on_the_session(new_session, tmp_path, zone, seed, size):
    for number in range(ROUNDS[size]):
        folder = tmp_path / str(number)
        folder.mkdir()
        choose = random.Random(f"{seed} {zone} {number}")
        settings = {"spark.sql.session.timeZone": zone, **drawn_settings(choose)}
        print(f"--seed {seed}, round {number}: {settings}")  # noqa: T201 - shown where it fails
        with Twins(folder, 0) as twins, session_with(new_session, settings) as session:
            drawn = Round(twins, session, zone, choose)
            drawn.make_table()
            drawn.insert(20)
            if not any("bucket" in key for key in drawn.keys):
                drawn.insert(6, PARTITIONS)
            drawn.change(folder)
            drawn.assert_same_partitions()


# --- storage options become settings of Hadoop's S3A, and go no further ---

PROVIDER = "org.apache.hadoop.fs.s3a."


def flat(options: dict) -> dict[str, str]:
    return {name: value for group in s3a_settings(options) for name, value in group.items()}


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ({}, {}),
        ({"anon": True}, {"aws.credentials.provider": f"{PROVIDER}AnonymousAWSCredentialsProvider"}),
        ({"anon": False}, {}),
        (
            {"key": "a", "secret": "b"},
            {
                "access.key": "a",
                "secret.key": "b",
                "aws.credentials.provider": f"{PROVIDER}SimpleAWSCredentialsProvider",
            },
        ),
        (
            {"key": "a", "secret": "b", "token": "c"},
            {
                "access.key": "a",
                "secret.key": "b",
                "session.token": "c",
                "aws.credentials.provider": f"{PROVIDER}TemporaryAWSCredentialsProvider",
            },
        ),
        (
            {
                "client_kwargs": {
                    "endpoint_url": "https://s3.eu-west-1.amazonaws.com",
                    "region_name": "eu-west-1",
                }
            },
            {
                "endpoint": "https://s3.eu-west-1.amazonaws.com",
                "path.style.access": "false",
                "endpoint.region": "eu-west-1",
            },
        ),
        (
            {"endpoint_url": "http://minio:9000"},
            {"endpoint": "http://minio:9000", "path.style.access": "true"},
        ),
    ],
)
def test_options_of_fsspec_have_their_names_in_s3a(options, settings):
    assert flat(options) == settings


@pytest.mark.classic_only("looks at settings of the JVM")
def test_only_the_lakes_own_buckets_are_set_up_and_no_setting_of_spark_shows_it(spark):
    options = {"key": "a-key", "secret": "a-s3cret", "endpoint_url": "http://minio:9000"}

    reach_buckets(
        spark, ["s3://own-bucket/lake/t/", "s3a://second.bucket/t/", "/data/t/", "gs://other/t/"], options
    )

    hadoop = spark._jsc.hadoopConfiguration()
    for bucket in ("own-bucket", "second.bucket"):
        assert hadoop.get(f"fs.s3a.bucket.{bucket}.secret.key") == "a-s3cret"
    assert hadoop.get("fs.s3a.secret.key") is None
    assert hadoop.get("fs.s3a.bucket.other.secret.key") is None
    assert "a-s3cret" not in str(spark.sparkContext.getConf().getAll())
    assert "a-s3cret" not in str(spark.sql("SET -v").collect())


@pytest.mark.parametrize(
    ("uri", "environment", "cure"),
    [
        ("/data/t/request.json", {}, "must be the same location for the task"),
        ("s3://lake/t/request.json", {}, "does not get the connection's storage options"),
        ("s3://lake/t/request.json", {"key": "id"}, "was given the connection's storage options"),
    ],
)
def test_a_driver_that_cannot_read_its_request_says_what_it_takes(monkeypatch, uri, environment, cure):
    for name, value in as_environment(environment).items():
        monkeypatch.setenv(name, value)

    text = unreadable_request(uri, StorageError("there is no such file"))

    assert text.startswith(f"The Spark driver cannot read {uri} (there is no such file). ")
    assert cure in text


def test_executors_of_other_machines_get_the_options_where_spark_hides_them(monkeypatch):
    for name, value in as_environment({"key": "id", "secret": "hunter2"}).items():
        monkeypatch.setenv(name, value)

    settings = own_settings(SparkConf(loadDefaults=False).setMaster("spark://master:7077"))

    (name,) = [name for name, value in settings.items() if "hunter2" in value]
    assert re.search("(?i)secret|password|token|access[.]?key", name)  # Spark's own default for what it hides


@pytest.mark.parametrize("master", ["yarn", "k8s://https://api:6443", "local[2]", None])
def test_no_setting_holds_the_options_where_others_read_settings(monkeypatch, master):
    for name, value in as_environment({"key": "id", "secret": "hunter2"}).items():
        monkeypatch.setenv(name, value)
    given = SparkConf(loadDefaults=False)

    settings = own_settings(given if master is None else given.setMaster(master))

    assert "spark.sql.session.timeZone" in settings
    assert "hunter2" not in str(settings)
    assert not any("executorEnv" in name for name in settings)


@pytest.mark.parametrize("variables", [as_environment, address_as_environment])
def test_executors_in_pods_and_containers_are_told_where_the_store_is(monkeypatch, variables):
    options = {
        "secret": "hunter2",
        "endpoint_url": "http://minio:9000",
        "client_kwargs": {"region_name": "x"},
    }
    for name, value in variables(options).items():
        monkeypatch.setenv(name, value)

    settings = own_settings(SparkConf(loadDefaults=False).setMaster("k8s://https://api:6443"))

    address = "endpoint_url=http%3A%2F%2Fminio%3A9000&client_kwargs.region_name=x"
    assert settings["spark.executorEnv.DUCKLAKE_STORAGE_ADDRESS"] == address
    assert "hunter2" not in str(settings)
