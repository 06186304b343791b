"""Jobs under the settings of users' sessions, in zones with summer time: rows and partitions are DuckDB's."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from airflow_provider_ducklake.lake.spark.sessions.settings import prepare
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
