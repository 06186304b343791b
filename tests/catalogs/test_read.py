"""Reading what the reference wrote: snapshots, and columns of other times."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake import errors
from airflow_provider_ducklake.lake.catalog.lake import Lake
from tests.interop.lakes import alone
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import DuckLakeConnection, open_lake

FILES_ONLY = {"data_inlining_row_limit": 0}


@pytest.fixture
def lake(sqlite_catalog: CatalogDatabase) -> Iterator[Lake]:
    open_lake(sqlite_catalog).close()
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        yield lake


def by_reference(catalog: CatalogDatabase, *statements: str, **options: object) -> None:
    with open_lake(catalog, **options) as reference:
        for statement in statements:
            reference.sql(statement)


def test_what_lies_in_the_past_or_is_gone_does_not_stop_a_reading(sqlite_catalog, lake):
    by_reference(
        sqlite_catalog,
        "CREATE TABLE t (i INTEGER)",
        "INSERT INTO t VALUES (1), (2)",
        "DELETE FROM t",
        "INSERT INTO t FROM range(20)",
        "DELETE FROM t",
        "INSERT INTO t FROM range(30)",
    )

    assert lake.read_arrow("t").num_rows == 30


def test_added_columns_have_their_defaults_renamed_ones_their_values_dropped_ones_are_gone(
    sqlite_catalog, lake
):
    by_reference(
        sqlite_catalog,
        "CREATE TABLE t (i INTEGER, gone VARCHAR, name VARCHAR)",
        "INSERT INTO t VALUES (1, 'x', 'a')",
        "ALTER TABLE t ADD COLUMN late INTEGER DEFAULT 7",
        "ALTER TABLE t ADD COLUMN empty DATE",
        "ALTER TABLE t ALTER late SET DEFAULT 8",
        "ALTER TABLE t RENAME name TO gone2",
        "ALTER TABLE t DROP COLUMN gone",
        "ALTER TABLE t RENAME gone2 TO gone",
        "ALTER TABLE t ALTER i SET DATA TYPE BIGINT",
        "INSERT INTO t VALUES (3000000000, 'b', DEFAULT, DATE '2024-01-01')",
        **FILES_ONLY,
    )

    rows = lake.read_arrow("t").sort_by("i")

    with open_lake(sqlite_catalog) as reference:
        expected = reference.arrow("SELECT * FROM t ORDER BY i")
    assert rows.to_pydict() == expected.to_pydict()
    assert rows.schema.field("i").type == pa.int64()
    assert rows.column("late").to_pylist() == [7, 8]


def test_a_table_of_the_past_has_its_columns_and_name_of_then(sqlite_catalog, lake):
    by_reference(
        sqlite_catalog,
        "CREATE SCHEMA s",
        "CREATE TABLE s.old (i INTEGER)",
        "INSERT INTO s.old VALUES (1)",
        **FILES_ONLY,
    )
    then = lake.current_snapshot()
    by_reference(
        sqlite_catalog,
        "ALTER TABLE s.old ADD COLUMN j INTEGER",
        "ALTER TABLE s.old RENAME TO new",
        **FILES_ONLY,
    )
    after = lake.current_snapshot()
    by_reference(sqlite_catalog, "DROP SCHEMA s CASCADE")

    assert lake.read_arrow("s.old", at=then.id).to_pydict() == {"i": [1]}
    assert lake.read_arrow("S.NEW", at=after.time).to_pydict() == {"i": [1], "j": [None]}
    with pytest.raises(errors.TableNotFoundError, match=rf"s\.old does not exist at snapshot {after.id}"):
        lake.read_arrow("s.old", at=after.id)
    with pytest.raises(errors.SchemaNotFoundError, match="'s'"):
        lake.read_arrow("s.new")


def test_only_the_columns_asked_for_come_in_the_order_asked_for(sqlite_catalog, lake):
    by_reference(sqlite_catalog, "CREATE TABLE t AS SELECT 1 AS a, 2 AS B, 3 AS c", **FILES_ONLY)

    assert lake.read_arrow("t", columns=["C", "b"]).to_pydict() == {"c": [3], "B": [2]}
    with pytest.raises(errors.ColumnNotFoundError, match=r"'d' is not in main\.t; its columns are: a, B, c"):
        lake.read_arrow("t", columns=["d"])


def test_a_table_without_rows_has_its_columns(sqlite_catalog, lake):
    by_reference(sqlite_catalog, "CREATE TABLE t (i INTEGER, l VARCHAR[])")

    rows = lake.read_arrow("t")

    assert (rows.num_rows, rows.column_names) == (0, ["i", "l"])


@pytest.fixture
def dated(catalog: CatalogDatabase) -> Iterator[Lake]:
    """Snapshots 0 to 5, the times of 2 to 4 equal, number 1 expired."""
    with open_lake(catalog) as reference:
        for number in range(5):
            reference.sql(f"CREATE TABLE t{number} (i INTEGER)")
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        snapshot = lake.opened.catalog.tables["snapshot"]
        times = [0, 1, 2, 2, 2, 3]
        with lake.opened.catalog.dialect.engine.begin() as connection:
            for number, microseconds in enumerate(times):
                connection.execute(
                    snapshot.update()
                    .where(snapshot.c.snapshot_id == number)
                    .values(snapshot_time=NOON + timedelta(microseconds=microseconds))
                )
        lake.expire_snapshots(snapshots=[1])
        yield lake


NOON = datetime(2026, 3, 1, 12, 0, 0, 999_998, tzinfo=UTC)  # so that the microseconds roll over


@pytest.mark.parametrize(("microseconds", "expected"), [(0, 0), (1, 0), (2, 4), (3, 5), (10**9, 5)])
def test_a_time_finds_the_newest_snapshot_at_or_before_it_to_the_microsecond(dated, microseconds, expected):
    at = NOON + timedelta(microseconds=microseconds)

    assert dated.snapshot_at(at).id == expected
    assert dated.snapshot_at(at.astimezone(timezone_of(hours=-7, minutes=-30))).id == expected


def test_times_that_others_wrote_in_another_form_are_found_too(sqlite_catalog):
    with open_lake(sqlite_catalog) as reference:
        for number in range(4):
            reference.sql(f"CREATE TABLE t{number} (i INTEGER)")
    written = [
        "2026-03-01 12:00:00+00",
        "2026-03-01T12:00:01Z",
        "2026-03-01 14:00:02+02",
        "2026-03-01 12:00:03.500000+00",
        "2026-03-01 12:00:04.25+00",
    ]
    with closing(sqlite3.connect(sqlite_catalog.location)) as connection, connection:
        for number, text in enumerate(written):
            connection.execute(
                "UPDATE ducklake_snapshot SET snapshot_time = ? WHERE snapshot_id = ?", (text, number)
            )
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        for seconds, before in ((0, 0), (0.9, 0), (1, 1), (2, 2), (3.4, 2), (3.5, 3), (4.25, 4), (9, 4)):
            assert lake.snapshot_at(noon + timedelta(seconds=seconds)).id == before
        for seconds, first in ((0, 1), (1, 1), (1.5, 2), (3.5, 3), (3.6, 4)):
            feed = lake.changes("t0", noon + timedelta(seconds=seconds), 4)
            assert feed.plan.start == (first if seconds else 0)


def timezone_of(**parts: int):
    from datetime import timezone  # noqa: PLC0415

    return timezone(timedelta(**parts))


def test_a_version_finds_itself_alone(dated):
    assert [dated.snapshot_at(number).id for number in (0, 2, 5)] == [0, 2, 5]
    for missing in (1, 6, -1):
        with pytest.raises(
            errors.SnapshotNotFoundError, match=f"snapshot {missing}; the lake holds snapshots 0 to 5"
        ):
            dated.snapshot_at(missing)
    ends = r"snapshot at 2026-03-01T12:00:00\.999997.* 0 to 5, made from 2026-03-01 .* to 2026-03-01"
    with pytest.raises(errors.SnapshotNotFoundError, match=ends):
        dated.snapshot_at(NOON - timedelta(microseconds=1))


@pytest.mark.parametrize(
    ("at", "said"),
    [
        (datetime.fromisoformat("0001-01-01T00:00:00+14:00"), "years 1 to 9999"),
        (datetime.fromisoformat("9999-12-31T23:59:59-14:00"), "years 1 to 9999"),
        (2**63, "has 64 bits"),
        (-(2**64), "has 64 bits"),
    ],
)
def test_what_no_catalog_can_hold_is_not_blamed_on_the_catalog(dated, at, said):
    for act in (
        dated.snapshot_at,
        dated.as_of,
        dated.tables,
        lambda at: dated.read_arrow("t0", at=at),
        lambda at: dated.changes("t0", at, 5),
        lambda at: dated.changes("t0", 5, at),
        lambda at: dated.restore("t0", at=at, dry_run=True),
    ):
        with pytest.raises(errors.InvalidInputError, match=said):
            act(at).tables()
    if isinstance(at, int):
        with pytest.raises(errors.InvalidInputError, match=said):
            dated.changes_after("t0", at)
        with pytest.raises(errors.InvalidInputError, match=said):
            dated.table_changes("t0", at, ["data"])


def test_a_snapshot_is_asked_for_by_an_aware_time(dated):
    for act in (dated.snapshot_at, dated.tables, lambda at: dated.read_arrow("t0", at=at)):
        with pytest.raises(errors.InvalidInputError, match="time zone"):
            act(NOON.replace(tzinfo=None))


def test_snapshots_are_those_that_the_reference_lists(catalog):
    with open_lake(catalog) as reference, Lake.connect(catalog.sqlalchemy_url) as lake:
        history(reference)

        theirs = reference.sql(
            "SELECT snapshot_id, snapshot_time, schema_version, author FROM lake.snapshots()"
        )
        ours = [(one.id, one.time, one.snapshot.schema_version, one.author) for one in lake.snapshots()]

    assert ours == theirs


def history(reference: DuckLakeConnection) -> None:
    for statement in (
        "CREATE SCHEMA s",
        "CREATE TABLE s.t (i INTEGER)",
        "BEGIN",
        "CALL lake.set_commit_message('me', 'text', extra_info => '{}')",
        "INSERT INTO s.t VALUES (1)",
        "COMMIT",
        "CREATE VIEW s.v AS FROM s.t",
        "COMMENT ON TABLE s.t IS 'it'",
        "DELETE FROM s.t",
    ):
        reference.sql(statement)


def test_a_table_of_the_catalog_that_we_do_not_know_does_no_harm(sqlite_catalog, lake):
    by_reference(sqlite_catalog, "CREATE TABLE t AS SELECT 1 AS i", **FILES_ONLY)
    with closing(sqlite3.connect(sqlite_catalog.location)) as connection, connection:
        connection.execute("CREATE TABLE ducklake_new_thing (i INTEGER)")
        connection.execute("ALTER TABLE ducklake_data_file ADD COLUMN row_group_count BIGINT")
        connection.execute("INSERT INTO ducklake_metadata VALUES ('unheard_of', 'x', NULL, NULL)")

    alone(lake).append_arrow("t", pa.table({"i": pa.array([2], pa.int32())}))

    assert sorted(lake.read_arrow("t").column("i").to_pylist()) == [1, 2]
