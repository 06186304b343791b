"""Options of tables by SQL, and keys in CREATE TABLE: rows as the reference's and ducklakepy's."""

import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake import errors
from airflow_provider_ducklake.lake.catalog.drafting.ddl import apply_ddl
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.format.versions import write_version
from airflow_provider_ducklake.lake.sql.duckdb.ddl import parse_ddl
from tests.interop.jobs import merge_adjacent
from tests.interop.lakes import alone, by_duckdb
from tests.reference import ducklakepy_lake
from tests.reference.catalog_dump import dump_catalog
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake

VALUES = {
    "data_inlining_row_limit": "25",
    "parquet_compression": "ZSTD",
    "parquet_version": "2",
    "parquet_compression_level": "3",
    "parquet_row_group_size": "1000",
    "parquet_row_group_size_bytes": "64MB",
    "target_file_size": "1GB",
    "hive_file_pattern": "false",
    "rewrite_delete_threshold": "0.25",
    "auto_compact": "false",
    "per_thread_output": "true",
    "write_deletion_vectors": "true",
    "sort_on_insert": "false",
}


@pytest.fixture(params=["1.0", "1.1"])
def lake(request, catalog: CatalogDatabase):
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path, version=request.param) as opened:
        with opened.transaction() as tx:
            tx.create_table("t", {"id": "int64", "day": "date", "s": "struct(a varchar, b struct(c double))"})
        yield opened


@pytest.fixture
def sqlite_lake(sqlite_catalog: CatalogDatabase):
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as opened:
        with opened.transaction() as tx:
            tx.create_table("t", {"id": "int64", "day": "date", "s": "struct(a varchar, b struct(c double))"})
        yield opened


def run(lake: Lake, text: str) -> None:
    with lake.transaction() as tx:
        apply_ddl(tx, parse_ddl(text, write_version(lake.version)))


def table_options(catalog: CatalogDatabase) -> dict[str, str]:
    rows = [row for row in dump_catalog(catalog)["ducklake_metadata"] if row["scope"] == "table"]
    found = {str(row["key"]): str(row["value"]) for row in rows}
    assert len(found) == len(rows)
    return found


def test_rows_are_the_references_and_ducklakepys(sqlite_catalog, new_catalog):
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake:
        run(lake, "CREATE TABLE t (id BIGINT)")
        run(lake, f"ALTER TABLE t SET ({', '.join(f'{key} = {value!r}' for key, value in VALUES.items())})")
    theirs = new_catalog("sqlite")
    with open_lake(theirs) as duck:
        duck.sql("CREATE TABLE t (id BIGINT)")
        for key, value in VALUES.items():
            literal = value if value in {"true", "false"} else f"'{value}'"
            duck.sql(f"CALL lake.set_option('{key}', {literal}, table_name => 't')")
    newest = new_catalog("sqlite")
    with ducklakepy_lake.open_lake(newest) as other:
        other.create_table("t", {"id": "int64"})
        for key, value in VALUES.items():
            other.set_option(key, value, table="t")

    assert table_options(sqlite_catalog) == table_options(theirs) == table_options(newest)


def test_options_make_no_snapshot_and_reset_takes_them_away(lake, catalog):
    head = lake.current_snapshot()

    run(lake, "ALTER TABLE t SET (target_file_size = '64MB', auto_compact = false)")
    assert table_options(catalog) == {"target_file_size": "64000000", "auto_compact": "false"}
    run(lake, "ALTER TABLE t SET (target_file_size = 5, sort_on_insert = false)")
    run(lake, "ALTER TABLE t RESET (auto_compact, hive_file_pattern)")

    assert table_options(catalog) == {"target_file_size": "5", "sort_on_insert": "false"}
    lake.reset_option("sort_on_insert", "t")
    assert table_options(catalog) == {"target_file_size": "5"}
    assert lake.current_snapshot() == head


def test_options_hold_for_the_rest_of_the_transaction(lake, catalog):
    lake.set_option("data_inlining_row_limit", 0, schema="main")
    with lake.transaction() as tx:
        apply_ddl(
            tx,
            parse_ddl(
                "CREATE TABLE n (a BIGINT); ALTER TABLE n SET (data_inlining_row_limit = 5);"
                "ALTER TABLE t RESET (data_inlining_row_limit)"
            ),
        )
        tx.append_arrow("n", pa.table({"a": [1]}))
    with lake.transaction() as tx:
        tx.reset_option("n", "data_inlining_row_limit")
        tx.append_arrow("n", pa.table({"a": [2]}))

    assert table_options(catalog) == {}
    with lake.transaction() as tx:
        assert tx._draft is not None
    rows = dump_catalog(catalog)["ducklake_data_file"]
    assert [row["record_count"] for row in rows] == [1]
    assert lake.verify() == []


def test_an_option_that_goes_with_others_does_not_raise_the_schema_version(lake):
    before = lake.current_snapshot().schema_version

    with lake.transaction() as tx:
        tx.set_option("t", "sort_on_insert", value=False)
        tx.truncate("t")

    assert lake.current_snapshot().schema_version == before


def test_a_lake_that_demands_messages_demands_none_of_options(lake, catalog):
    lake.set_option("require_commit_message", value=True)

    run(lake, "ALTER TABLE t SET (sort_on_insert = false)")

    assert table_options(catalog) == {"sort_on_insert": "false"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("SET (nope = 1)", r"'nope' is not an option of main\.t that can be set; the options"),
        ("RESET (nope)", r"'nope' is not an option of main\.t that can be set; the options"),
        ("SET (version = '1.1')", r"'version' is not an option of main\.t that can be set; the options"),
        ("SET (target_file_size = 'large')", r"target_file_size of main\.t cannot be 'large'\. Give a size"),
        ("SET (target_file_size = NULL)", r"target_file_size of main\.t cannot be None\. Give a size"),
        ("SET (hive_file_pattern = 'maybe')", r"hive_file_pattern of main\.t .*'maybe'\. Give true or false"),
        ("SET (rewrite_delete_threshold = 1.5)", r"'1\.5'\. Give a number from 0 to 1"),
        ("SET (data_inlining_row_limit = -1)", r"'-1'\. Give a whole number from 0 to 2\*\*64 - 1"),
        (f"SET (parquet_row_group_size = {2**64})", r"'18446744073709551616'\. Give a whole number from 1"),
        ("SET (parquet_compression_level = 23)", r"'23'\. Give a whole number from 0 to 22"),
        ("SET (target_file_size = '20000000TB')", r"'20000000TB'\. Give a size"),
        ("SET (parquet_compression = lzma)", r"'lzma'\. Give one of uncompressed, snappy"),
        ("SET (auto_compact = ['x'])", r"auto_compact of main\.t cannot be \('x',\)\. Give true or false"),
        ("SET (skip_stats_columns = NULL)", r"skip_stats_columns cannot be None\. Give a column's name"),
        ("SET (skip_stats_columns = 'id,day')", r"main\.t cannot name 'id,day': .* id, day, s\. .* a list"),
        ("SET (skip_stats_columns = ['id', 's.a'])", r"cannot name 's\.a'"),
    ],
)
def test_an_error_names_table_option_value_and_what_to_do(sqlite_lake, sqlite_catalog, text, says):
    with pytest.raises(errors.InvalidOptionError, match=says):
        run(sqlite_lake, f"ALTER TABLE t SET (sort_on_insert = false); ALTER TABLE t {text}")

    assert table_options(sqlite_catalog) == {}


@pytest.mark.parametrize(
    "options",
    [
        {"target_file_size": "10000000TB"},
        {"parquet_row_group_size": f"{2**64 - 1}"},
        {"parquet_compression": "zstd", "parquet_compression_level": "23"},
        {"parquet_compression": "gzip", "parquet_compression_level": "22"},
    ],
)
def test_numbers_that_the_reference_sets_are_as_great_as_a_writer_takes_them(sqlite_catalog, options):
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as duck:
        duck.sql("CREATE TABLE t (id BIGINT)")
        for key, value in {**options, "data_inlining_row_limit": "0"}.items():
            duck.sql(f"CALL lake.set_option('{key}', '{value}')")
    rows = pa.table({"id": range(1000)})
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        lake.append_arrow("t", rows)
        lake.append_arrow("t", rows)
        merge_adjacent(lake)
        assert len(lake.files("t")) == 1
    assert by_duckdb(sqlite_catalog, "SELECT count(*), sum(id) FROM t") == [(2000, 999000)]


def test_a_share_is_from_0_to_1(sqlite_lake):
    with pytest.raises(errors.InvalidOptionError, match="from 0 to 1"):
        sqlite_lake.set_option("rewrite_delete_threshold", 1.5)


@pytest.mark.parametrize("key", ["sort_on_insert", "skip_stats_columns"])
def test_an_option_is_of_a_table_or_of_a_schema(sqlite_lake, sqlite_catalog, key):
    with pytest.raises(errors.InvalidInputError, match="a table or a schema, not both: 't' and 'main'"):
        sqlite_lake.set_option(key, "id", table="t", schema="main")

    assert table_options(sqlite_catalog) == {}


def test_an_option_of_a_table_that_another_drops_is_a_conflict(lake, catalog):
    def both() -> None:
        with lake.transaction() as tx:
            tx.set_option("t", "sort_on_insert", value=False)
            with Lake.connect(catalog.sqlalchemy_url) as other, other.transaction() as first:
                first.drop_table("t")

    with pytest.raises(errors.TransactionConflictError, match="dropped it"):
        both()
    assert table_options(catalog) == {}


def test_options_go_with_the_last_snapshot_of_their_table_at_1_1(sqlite_catalog):
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path, version="1.1") as lake:
        run(lake, "CREATE SCHEMA s; CREATE TABLE s.gone (a INT); CREATE TABLE kept (a INT)")
        run(lake, "ALTER TABLE s.gone SET (sort_on_insert = false)")
        run(lake, "ALTER TABLE kept SET (sort_on_insert = false)")
        lake.set_option("auto_compact", value=False, schema="s")
        run(lake, "DROP SCHEMA s CASCADE")
        scopes = {row["scope"] for row in dump_catalog(sqlite_catalog)["ducklake_metadata"]}
        assert scopes == {None, "schema", "table"}

        lake.expire_snapshots(snapshots=[one.id for one in lake.snapshots()[:-1]])

    left = [row for row in dump_catalog(sqlite_catalog)["ducklake_metadata"] if row["scope"] is not None]
    assert [(row["scope"], row["key"]) for row in left] == [("table", "sort_on_insert")]


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_keys_of_a_new_table_are_those_of_the_alters_in_its_snapshot(sqlite_catalog, new_catalog, version):
    keys = "bucket(4, id), year(day), month(day), day(day), hour(moment)"
    columns = "id BIGINT, day DATE, moment TIMESTAMP"
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path, version=version) as lake:
        run(lake, f"CREATE TABLE t ({columns}) SORTED BY (day, id) PARTITIONED BY ({keys})")
        assert lake.current_snapshot().id == 1
    theirs = new_catalog("sqlite")
    with open_lake(theirs) as duck:
        duck.sql(
            f"BEGIN; CREATE TABLE t ({columns}); ALTER TABLE t SET SORTED BY (day, id);"
            f"ALTER TABLE t SET PARTITIONED BY ({keys}); COMMIT"
        )

    ours, reference = dump_catalog(sqlite_catalog), dump_catalog(theirs)
    for name in ("partition_info", "partition_column", "sort_info", "sort_expression"):
        found = [_without(row, "partition_id", "sort_id") for row in ours[f"ducklake_{name}"]]
        assert found == [_without(row, "partition_id", "sort_id") for row in reference[f"ducklake_{name}"]]
        assert found


def _without(row: dict[str, object], *names: str) -> dict[str, object]:
    return {name: value for name, value in row.items() if name not in names}


def test_a_later_alter_of_the_transaction_replaces_the_keys_without_a_row(lake, catalog):
    run(
        lake,
        "CREATE TABLE n (id BIGINT, day DATE) PARTITIONED BY (year(day)) SORTED BY (id);"
        "ALTER TABLE n SET PARTITIONED BY (bucket(8, id)); ALTER TABLE n SET SORTED BY (day DESC);"
        "CREATE TABLE plain (id BIGINT) SORTED BY (id) PARTITIONED BY (id);"
        "ALTER TABLE plain RESET SORTED BY; ALTER TABLE plain RESET PARTITIONED BY",
    )

    found = dump_catalog(catalog)
    assert [row["transform"] for row in found["ducklake_partition_column"]] == ["bucket(8)"]
    assert [row["sort_direction"] for row in found["ducklake_sort_expression"]] == ["DESC"]
    assert (len(found["ducklake_partition_info"]), len(found["ducklake_sort_info"])) == (1, 1)


def test_epoch_keys_of_a_new_table_are_read_by_ducklakepy(sqlite_catalog):
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path, version="1.1") as lake:
        run(lake, "CREATE TABLE t (d DATE, i INT) PARTITIONED BY (epoch_day(d), epoch_year(d), bucket(4, i))")
    with ducklakepy_lake.open_lake(sqlite_catalog) as theirs:
        keys = theirs.partition_keys("t")

    assert [(str(name), str(transform)) for name, transform in keys] == [
        ("d", "epoch_day"),
        ("d", "epoch_year"),
        ("i", "bucket(4)"),
    ]


def test_both_ways_to_create_a_table_take_keys(sqlite_lake, sqlite_catalog):
    alone(sqlite_lake).create_table("n", {"id": "int64", "day": "date"}, ["year(day)"], sort_by=["id DESC"])

    found = dump_catalog(sqlite_catalog)
    assert [row["transform"] for row in found["ducklake_partition_column"]] == ["year"]
    assert [row["sort_direction"] for row in found["ducklake_sort_expression"]] == ["DESC"]


def test_a_lake_of_1_0_has_no_epoch_keys(sqlite_catalog):
    with (
        Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path, version="1.0") as lake,
        pytest.raises(errors.UnsupportedFeatureError, match="DuckLakeMigrateOperator"),
    ):
        run(lake, "CREATE TABLE t (d DATE) PARTITIONED BY (epoch_day(d))")
