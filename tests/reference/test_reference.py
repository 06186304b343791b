import os
import time
from pathlib import Path

import duckdb
import psycopg
import pytest
import sqlalchemy as sa

from tests.reference.catalog_dump import (
    IGNORED,
    KEYS,
    assert_catalogs_equal,
    catalog_differences,
    dump_catalog,
    dump_schema,
    normalise,
)
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake

HISTORY = (
    'CREATE SCHEMA "odd name"',
    "CREATE TABLE t (i INTEGER, s VARCHAR, d DOUBLE, ts TIMESTAMPTZ, u UUID)",
    "INSERT INTO t VALUES (1, 'row', 0.5, '2024-01-02 03:04:05+00', '5b0e2b0a-0000-4000-8000-000000000001')",
    "INSERT INTO t SELECT i, 'file', 1.5, NULL, NULL FROM range(20) r(i)",
    'CREATE TABLE "odd name"."t 2" AS SELECT i FROM range(30) r(i)',
    "DELETE FROM t WHERE i = 3",
    "ALTER TABLE t ADD COLUMN late INTEGER DEFAULT 7",
    'DROP TABLE "odd name"."t 2"',
)


def write_history(catalog: CatalogDatabase) -> None:
    with open_lake(catalog) as lake:
        for statement in HISTORY:
            lake.sql(statement)


@pytest.fixture(params=["sqlite", "postgres", "duckdb"])
def any_catalog(request, new_catalog) -> CatalogDatabase:
    return new_catalog(request.param)


def test_the_reference_reads_back_what_it_wrote(any_catalog):
    write_history(any_catalog)

    with open_lake(any_catalog) as lake:
        rows = lake.sql("SELECT count(*), sum(late) FROM t")

    assert rows == [(20, 140)]


def test_a_lake_opens_by_its_attach_string_alone(catalog):
    write_history(catalog)

    with open_lake(catalog.attach_string) as lake:
        assert lake.sql("SELECT max(i) FROM t") == [(19,)]


def test_attach_options_reach_the_extension(catalog):
    with open_lake(catalog, data_inlining_row_limit=0) as lake:
        lake.sql("CREATE TABLE t (i INTEGER)")
        lake.sql("INSERT INTO t VALUES (1)")

    assert len(dump_catalog(catalog)["ducklake_data_file"]) == 1


def test_the_sqlalchemy_url_leads_to_the_same_database(catalog):
    write_history(catalog)

    engine = sa.create_engine(catalog.sqlalchemy_url, poolclass=sa.NullPool)
    with engine.connect() as connection:
        head = connection.execute(sa.text("SELECT max(snapshot_id) FROM ducklake_snapshot")).scalar_one()

    assert head == len(HISTORY)


def test_the_dump_has_the_tables_and_columns_of_spec_1_0(any_catalog):
    write_history(any_catalog)

    dump, schema = dump_catalog(any_catalog), dump_schema(any_catalog)

    assert dump.keys() == schema.keys()
    assert KEYS.keys() <= dump.keys()
    assert [name for name, _, _ in schema["ducklake_table_stats"]] == [
        "table_id",
        "record_count",
        "next_row_id",
        "file_size_bytes",
    ]
    assert [name for name, _, is_key in schema["ducklake_snapshot"] if is_key] == ["snapshot_id"]
    assert list(dump["ducklake_snapshot"][0]) == [name for name, _, _ in schema["ducklake_snapshot"]]


def test_every_ignored_and_identifying_column_exists(catalog):
    write_history(catalog)
    columns = {f"{table}.{name}" for table, layout in dump_schema(catalog).items() for name, _, _ in layout}

    named = {name.split(" ")[0] for name in IGNORED} | {f"{t}.{c}" for t, key in KEYS.items() for c in key}

    assert named <= columns


def test_two_runs_of_one_history_are_equal(catalog, reference_catalog):
    write_history(catalog)
    write_history(reference_catalog)

    assert dump_catalog(catalog) != dump_catalog(reference_catalog)
    assert_catalogs_equal(dump_catalog(catalog), dump_catalog(reference_catalog))


def test_both_kinds_of_catalog_hold_the_same_rows(sqlite_catalog, postgres_catalog):
    write_history(sqlite_catalog)
    write_history(postgres_catalog)

    inlined = (
        "ducklake_inlined_data_2_2",
        "ducklake_inlined_data_2_7",
        "ducklake_inlined_data_3_3",
    )  # typed values
    assert_catalogs_equal(dump_catalog(sqlite_catalog), dump_catalog(postgres_catalog), ignore=inlined)


def test_the_same_uuid_keeps_one_placeholder(sqlite_catalog):
    write_history(sqlite_catalog)

    dump = normalise(dump_catalog(sqlite_catalog))

    odd = next(row for row in dump["ducklake_schema"] if row["schema_name"] == "odd name")
    assert odd["path"] == f"{odd['schema_uuid']}/"
    assert len({row["schema_uuid"] for row in dump["ducklake_schema"]}) == 2


def test_a_planted_value_is_reported_by_table_row_and_column(sqlite_catalog):
    write_history(sqlite_catalog)
    ours, theirs = dump_catalog(sqlite_catalog), dump_catalog(sqlite_catalog)
    ours["ducklake_data_file"][0]["record_count"] = 21

    with pytest.raises(AssertionError, match=r"ducklake_data_file 1: record_count: 21 \| 20"):
        assert_catalogs_equal(ours, theirs)

    assert list(catalog_differences(ours, theirs, ignore=["ducklake_data_file.record_count"])) == []


def test_a_missing_row_and_a_missing_table_are_reported(sqlite_catalog):
    write_history(sqlite_catalog)
    ours, theirs = dump_catalog(sqlite_catalog), dump_catalog(sqlite_catalog)
    del ours["ducklake_tag"]
    del theirs["ducklake_snapshot"][2]

    differences = list(catalog_differences(ours, theirs))

    assert differences[0].startswith("ducklake_snapshot 2: snapshot_id=2, ")
    assert differences[0].endswith(" | no such row")
    assert differences[1:] == ["ducklake_tag: absent | present"]


def test_hidden_values_still_differ_from_null(sqlite_catalog):
    write_history(sqlite_catalog)
    ours, theirs = dump_catalog(sqlite_catalog), dump_catalog(sqlite_catalog)
    ours["ducklake_data_file"][0]["footer_size"] = None

    assert list(catalog_differences(ours, theirs)) == [
        "ducklake_data_file 1: footer_size: None | '<footer_size>'"
    ]


def test_a_uuid_that_breaks_its_link_is_a_difference(sqlite_catalog):
    write_history(sqlite_catalog)
    ours, theirs = dump_catalog(sqlite_catalog), dump_catalog(sqlite_catalog)
    ours["ducklake_schema"][1]["schema_uuid"] = "01a1fbfe-0000-7000-8000-000000000000"

    (difference,) = catalog_differences(ours, theirs)

    assert difference.startswith("ducklake_schema 1, 1: path: '<path of ")
    assert difference.endswith(" | '<schema_uuid of ducklake_schema 1, 1>/'")


def test_a_file_in_the_wrong_directory_is_a_difference(sqlite_catalog):
    write_history(sqlite_catalog)
    ours, theirs = dump_catalog(sqlite_catalog), dump_catalog(sqlite_catalog)
    ours["ducklake_data_file"][0]["path"] = "elsewhere/" + ours["ducklake_data_file"][0]["path"]

    (difference,) = catalog_differences(ours, theirs)

    assert difference.startswith(
        "ducklake_data_file 1: path: 'elsewhere/ducklake-<path of ducklake_data_file 1>"
    )


def test_float32_bounds_are_compared_by_value(sqlite_catalog):
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as lake:
        lake.sql("CREATE TABLE f (x FLOAT)")
        lake.sql("INSERT INTO f VALUES (-1915074.75)")
    ours, theirs = dump_catalog(sqlite_catalog), dump_catalog(sqlite_catalog)
    bounds = ours["ducklake_table_column_stats"][0]

    bounds["min_value"] = "-1915074.8"
    shortest = list(catalog_differences(ours, theirs))
    bounds["min_value"] = "-1915074.9"
    another = list(catalog_differences(ours, theirs))

    assert shortest == []
    assert len(another) == 1


def test_an_encrypted_lake_can_be_written(sqlite_catalog):
    with open_lake(sqlite_catalog, encrypted=True, data_inlining_row_limit=0) as lake:
        lake.sql("CREATE TABLE t (i INTEGER)")
        lake.sql("INSERT INTO t VALUES (1)")

    (file,) = dump_catalog(sqlite_catalog)["ducklake_data_file"]
    assert len(file["encryption_key"]) == 24


def test_tests_run_in_utc(catalog):
    assert time.tzname == ("UTC", "UTC")
    assert os.environ["TZ"] == "UTC"
    with open_lake(catalog) as lake:
        assert lake.sql("SELECT current_setting('TimeZone')") == [("UTC",)]


def test_the_reference_is_the_pinned_version(sqlite_catalog):
    with open_lake(sqlite_catalog) as lake:
        loaded = lake.sql(
            "SELECT extension_version FROM duckdb_extensions() WHERE extension_name = 'ducklake'"
        )

    assert duckdb.__version__ == os.environ.get("DUCKLAKE_REFERENCE", "1.5.5")
    assert loaded == [("d8a1881e",)] or "DUCKLAKE_REFERENCE" in os.environ


def test_each_catalog_starts_empty_with_a_directory_of_its_own(catalog, reference_catalog):
    assert catalog.data_path != reference_catalog.data_path
    for fresh in (catalog, reference_catalog):
        assert fresh.kind == "sqlite" or dump_schema(fresh) == {}
        assert list(Path(fresh.data_path).iterdir()) == []


def test_postgres_keeps_its_clock_in_utc(postgres_catalog):
    with psycopg.connect(postgres_catalog.location) as connection:
        assert connection.execute("SHOW timezone").fetchone() == ("UTC",)


def test_the_seed_is_the_days_unless_given(seed, size):
    assert seed >= 0
    assert size in ("ci", "full")
