"""Tagged snapshots stay readable through expiry, compaction, clean-up and migration; DuckDB judges them."""

from collections.abc import Callable
from dataclasses import astuple
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import create_engine, text

from airflow_provider_ducklake.lake import errors
from airflow_provider_ducklake.lake.catalog.database.connect import parse_url
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.format.tags import LONGEST_NAME
from airflow_provider_ducklake.lake.planning.upkeep.findings import FindingCode
from tests.interop.jobs import merge_adjacent, rewrite
from tests.interop.lakes import alone, by_duckdb
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake

NOW = timedelta(0)
CLOSE = 5  # the snapshot that tests tag: rows in files, in the catalog, and deleted ones of both
HISTORY = (
    "CREATE TABLE t (i INTEGER, s VARCHAR)",  # 1
    "INSERT INTO t SELECT i, 'old' FROM range(30) r(i)",  # 2: a file
    "INSERT INTO t VALUES (100, 'inlined'), (101, 'inlined')",  # 3
    "DELETE FROM t WHERE i IN (3, 101)",  # 4
    "CREATE TABLE gone AS SELECT i::INTEGER AS i FROM range(20) r(i)",  # 5
    "DROP TABLE gone",
    "ALTER TABLE t DROP COLUMN s",
    "ALTER TABLE t ADD COLUMN later INTEGER DEFAULT 7",
    "INSERT INTO t SELECT i, i FROM range(200, 230) r(i)",
    "DELETE FROM t WHERE i < 25",
    "UPDATE t SET i = i + 1000",
    "INSERT INTO t VALUES (9, 9)",
)


def write_history(catalog: CatalogDatabase) -> None:
    by_duckdb(catalog, *HISTORY)


def seen_by_duckdb(catalog: CatalogDatabase, version: int, table: str = "t") -> list[tuple[Any, ...]]:
    return sorted(by_duckdb(catalog, f"SELECT rowid, * FROM {table} AT (VERSION => {version})"))


def by_us(lake: Lake, at: Any, table: str = "t") -> list[tuple[Any, ...]]:
    return sorted(map(tuple, (row.values() for row in lake.read_arrow(table, at=at).to_pylist())))


def files(catalog: CatalogDatabase) -> set[str]:
    return {str(path) for path in Path(catalog.data_path).rglob("*.parquet")}


def run_sql(catalog: CatalogDatabase, statement: str) -> None:
    engine = create_engine(parse_url(catalog.sqlalchemy_url))
    with engine.begin() as connection:
        connection.execute(text(statement))
    engine.dispose()


@pytest.fixture
def lake(catalog: CatalogDatabase):
    write_history(catalog)
    with Lake.connect(catalog.sqlalchemy_url) as opened:
        yield opened


@pytest.fixture
def own(catalog: CatalogDatabase):
    """A lake of ours in any database: snapshot 2 has a row, 3 another."""
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path, version=catalog.spec_version) as opened:
        alone(opened).create_table("main.t", {"i": "int64"})
        for number in (1, 2):
            opened.append_arrow("main.t", pa.table({"i": [number]}))
        yield opened


def clean(lake: Lake) -> None:
    lake.cleanup_old_files(older_than=NOW)
    lake.delete_orphaned_files(older_than=NOW)


def test_a_tag_survives_expiry_and_clean_up_and_goes_once_it_is_removed(lake, catalog):
    ours, theirs = by_us(lake, CLOSE), seen_by_duckdb(catalog, CLOSE)
    dropped = seen_by_duckdb(catalog, CLOSE, "gone")
    assert len(ours) == len(theirs) == 30
    lake.tag("q3-close", CLOSE)

    planned = lake.expire_snapshots(keep_last=1, dry_run=True)
    done = lake.expire_snapshots(keep_last=1)
    clean(lake)

    assert planned.kept_by_tags == done.kept_by_tags == 1
    assert [one.id for one in planned.snapshots] == [one.id for one in done.snapshots]
    assert [one.id for one in lake.snapshots()] == [CLOSE, len(HISTORY)]
    assert by_us(lake, "tag:q3-close") == by_us(lake, CLOSE) == ours
    assert seen_by_duckdb(catalog, CLOSE) == theirs
    assert seen_by_duckdb(catalog, CLOSE, "gone") == dropped
    assert by_us(lake, "tag:q3-close", "gone") == [row[1:] for row in dropped]
    assert lake.verify() == []

    before = files(catalog)
    lake.untag("q3-close")
    last = lake.expire_snapshots(keep_last=1)
    clean(lake)

    assert ([one.id for one in last.snapshots], last.kept_by_tags) == ([CLOSE], 0)
    assert files(catalog) < before
    with pytest.raises(errors.TagNotFoundError, match="'q3-close'; the lake has none"):
        lake.read_arrow("t", at="tag:q3-close")
    with pytest.raises(errors.SnapshotNotFoundError):
        lake.read_arrow("t", at=CLOSE)
    assert lake.verify() == []


@pytest.mark.both_versions
@pytest.mark.every_catalog(mariadb="daily", duckdb="daily")
@pytest.mark.drawn(one_in=1)
def test_every_catalog_keeps_what_is_tagged(own):
    """MariaDB too, which compares names as it is told; in DuckDB files as well."""
    made = own.tag("Quarter", 2, author="ada", message="audited")
    again = own.tag("Quarter", 2, author="bob")
    own.tag("quarter", 3)

    assert (made.moved_from, made.is_earlier, again.is_earlier) == (None, False, True)
    upper, lower = own.tags()
    assert (upper.name, upper.snapshot_id, upper.author, upper.message) == ("Quarter", 2, "ada", "audited")
    assert (upper.snapshot_time, upper.is_lost) == (own.snapshot_at(2).time, False)
    assert upper.tagged_at <= datetime.now(UTC) + timedelta(minutes=1)
    assert (lower.name, lower.snapshot_id) == ("quarter", 3)
    alone(own).delete_rows("main.t", "i = 1")
    result = own.expire_snapshots(keep_last=1)
    clean(own)
    assert ([one.id for one in result.snapshots], result.kept_by_tags) == ([0, 1], 2)
    assert by_us(own, "tag:Quarter") == [(1,)]
    assert by_us(own, "tag:quarter") == [(1,), (2,)]
    assert by_us(own, None) == [(2,)]
    assert own.untag("Quarter").snapshot_id == 2
    assert [one.name for one in own.tags()] == ["quarter"]
    with pytest.raises(errors.TagNotFoundError, match="'Quarter'; the lake has 'quarter'"):
        own.untag("Quarter")
    assert own.verify() == []


def test_a_tag_names_a_snapshot_wherever_one_can_be_named(own):
    own.tag("one", 2)
    own.tag("two", 3)
    alone(own).delete_rows("main.t", "i = 1")

    assert by_us(own, "tag:one") == [(1,)]
    assert by_us(own.as_of("tag:one"), None) == [(1,)]
    assert own.snapshot_at("tag:two").id == 3
    assert [one.snapshot_id for one in (own.tag("of-one", "tag:one"), own.tag("newest"))] == [2, 4]
    assert own.as_of("tag:one").tag("pinned").snapshot_id == 2
    assert [str(one) for one in own.tables(at="tag:one")] == ["main.t"]
    assert own.row_count("t", at="tag:two") == 2
    assert own.table_snapshot("t", at="tag:one").snapshot.id == 2
    assert own.scan("t", at="tag:one", filter="i = 1").table.snapshot.id == 2
    assert own.column_bounds("t", "i", at="tag:one") is not None
    assert own.table_info("t", at="tag:one")[0].table_name == "t"
    assert len(own.files("t", at="tag:one")) <= 1
    assert own.reads.schema("main", at="tag:one") is not None
    changes = own.changes("t", "tag:two", "tag:newest").read_arrow().to_pylist()
    assert [(one["snapshot_id"], one["change_type"]) for one in changes] == [(3, "insert"), (4, "delete")]
    assert own.insertions("t", "tag:two", 4)["i"].to_pylist() == [2]
    assert own.deletions("t", "tag:two", "tag:newest")["i"].to_pylist() == [1]
    after = own.changes_after("t", "tag:two", "tag:newest").read_arrow().to_pylist()
    assert [one["change_type"] for one in after] == ["delete"]
    found = own.table_changes("t", "tag:two", {"delete"})
    assert found is not None
    assert (found.from_snapshot, found.to_snapshot) == (3, 4)
    restored = own.restore("t", at="tag:two")
    assert restored.as_of == 3
    assert by_us(own, None) == [(1,), (2,)]


def test_a_name_stays_where_it_is_unless_it_is_to_be_moved(own):
    own.tag("release", 2)

    with pytest.raises(errors.TagExistsError, match="'release' names snapshot 2, and was to name snapshot 3"):
        own.tag("release", 3)
    assert own.snapshot_at("tag:release").id == 2
    moved = own.tag("release", 3, replace=True)

    assert (moved.snapshot_id, moved.moved_from, moved.is_earlier) == (3, 2, False)
    assert own.snapshot_at("tag:release").id == 3


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "it is empty"),
        ("x" * (LONGEST_NAME + 1), "it has 256 characters"),
        ("a\nb", "control character"),
        ("a\0b", "control character"),
        ("a\u2028b", "end of a line"),
        ("\ud800", "unpaired surrogate"),
        (" a", "begins or ends with a space"),
        ("a\u00a0", "begins or ends with a space"),
        ("tag:a", "leave out 'tag:'"),
    ],
)
def test_a_name_that_no_tag_can_have_is_refused(sqlite_catalog, name, said):
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake:
        with pytest.raises(errors.InvalidNameError, match=said):
            lake.tag(name)
        with pytest.raises(errors.InvalidNameError, match=said):
            lake.untag(name)
        assert lake.tags() == []


@pytest.mark.every_catalog
@pytest.mark.parametrize(
    "name", ["\N{FOUR LEAF CLOVER}" * LONGEST_NAME, "Straße/été 2026", "'; DROP TABLE x --", "100%_"]
)
def test_every_catalog_keeps_each_name_as_it_is(own, name):
    own.tag(name, 2)
    own.tag(name.swapcase() if name.swapcase() != name else f"{name[:-1]}x", 3)

    assert name in [one.name for one in own.tags()]
    assert by_us(own, f"tag:{name}") == [(1,)]


def test_what_names_no_snapshot_is_refused(own):
    for at in ("2", "q3", "TAG:q3"):
        with pytest.raises(errors.InvalidInputError, match="a snapshot id, an aware datetime, or a tag"):
            own.read_arrow("t", at=at)
    with pytest.raises(errors.TagNotFoundError):
        own.read_arrow("t", at="tag:q3")
    with pytest.raises(errors.TagNotFoundError):
        own.untag("q3")
    with pytest.raises(errors.SnapshotNotFoundError):
        own.tag("q3", 99)
    with pytest.raises(errors.SnapshotNotFoundError):
        own.tag("q3", datetime(2020, 1, 1, tzinfo=UTC))
    assert own.tags() == []


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_tagged_snapshot_does_not_expire_by_its_id(own, dry_run):
    own.tag("a", 1)
    own.tag("b", 1)

    with pytest.raises(errors.SnapshotTaggedError, match=r"1 \('a', 'b'\)"):
        own.expire_snapshots(snapshots=[0, 1], dry_run=dry_run)
    assert [one.id for one in own.snapshots()] == [0, 1, 2, 3]
    kept = own.expire_snapshots(snapshots=[0, 1], keep=[1], dry_run=dry_run)
    assert ([one.id for one in kept.snapshots], kept.kept_by_tags) == ([0], 0)


def test_what_tags_keep_is_counted_once(own):
    own.tag("a", 1)
    own.tag("also-a", 1)
    own.tag("newest")  # which stays anyhow

    assert own.expire_snapshots(keep_last=1).kept_by_tags == 1
    assert own.expire_snapshots(older_than=timedelta(days=1)).kept_by_tags == 0


def expired_by_duckdb(catalog: CatalogDatabase) -> None:
    by_duckdb(catalog, f"CALL ducklake_expire_snapshots('lake', versions => [{CLOSE}])")


def test_what_duckdb_expired_all_the_same_is_said(lake, catalog):
    lake.tag("q3-close", CLOSE)
    made = lake.snapshot_at(CLOSE).time
    lake.close()
    expired_by_duckdb(catalog)

    with pytest.raises(
        errors.TaggedSnapshotLostError, match=f"names snapshot {CLOSE}, made at .*ducklake_expire"
    ):
        lake.read_arrow("t", at="tag:q3-close")
    (tag,) = lake.tags()
    assert (tag.is_lost, tag.snapshot_time) == (True, made)
    (finding,) = lake.verify(sample=0)
    assert (finding.code, finding.objects["tag"]) == (FindingCode.TAG_WITHOUT_SNAPSHOT, "q3-close")
    assert lake.tag("q3-close", CLOSE + 1, replace=True).moved_from == CLOSE
    assert lake.verify(sample=0) == []


def expired_and_read(lake: Lake, catalog: CatalogDatabase, maintain: Callable[[], object]) -> None:
    """Check that maintenance, and expiry of all else, leave the tagged snapshot as it was."""
    ours, theirs = by_us(lake, CLOSE), seen_by_duckdb(catalog, CLOSE)
    lake.tag("q3-close", CLOSE)
    lake.close()
    maintain()
    assert by_us(lake, "tag:q3-close") == ours
    lake.expire_snapshots(keep_last=1)
    clean(lake)
    assert by_us(lake, "tag:q3-close") == ours
    assert seen_by_duckdb(catalog, CLOSE) == theirs
    assert lake.verify() == []


def test_flushed_rows_stay_as_the_tag_has_them(lake, catalog):
    expired_and_read(lake, catalog, lake.flush_inlined_data)


def test_we_compact_around_a_tag(lake, catalog):
    def compact() -> None:
        lake.flush_inlined_data()
        assert merge_adjacent(lake) is not None
        assert rewrite(lake) is not None

    expired_and_read(lake, catalog, compact)


def test_duckdb_compacts_around_a_tag(lake, catalog):
    def compact() -> None:
        with open_lake(catalog) as reference:
            reference.sql("CALL ducklake_flush_inlined_data('lake')")
            reference.sql("CALL ducklake_merge_adjacent_files('lake')")
            reference.sql("CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0)")

    expired_and_read(lake, catalog, compact)


def test_a_migration_keeps_tags(sqlite_catalog):
    write_history(sqlite_catalog)
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        rows = by_us(lake, CLOSE)
        lake.tag("q3-close", CLOSE, message="kept")
        before = [astuple(one) for one in lake.tags()]

        lake.migrate("1.1", backup=False)

        assert [astuple(one) for one in lake.tags()] == before
        assert by_us(lake, "tag:q3-close") == rows
        lake.expire_snapshots(keep_last=1)
        clean(lake)
        assert by_us(lake, "tag:q3-close") == rows
        assert lake.verify() == []


def test_a_lake_that_nobody_tagged_needs_no_table(own, catalog):
    assert own.tags() == []
    assert own.expire_snapshots(keep_last=1).kept_by_tags == 0
    own.tag("now")
    run_sql(catalog, "DROP TABLE airflow_ducklake_tag")
    assert own.tags() == []
    assert own.verify() == []
