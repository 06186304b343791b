"""Iceberg tables become a lake's tables: DuckDB, pyiceberg and this library read the same rows."""

import gzip
import json
import multiprocessing
import shutil
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFileContent
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from airflow_provider_ducklake.lake import errors
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.storage.files.filesystem import open_filesystem
from airflow_provider_ducklake.lake.storage.foreign import source as metadata
from airflow_provider_ducklake.lake.storage.foreign.iceberg import iceberg_table
from tests.interop.iceberg_source import (
    append,
    changed,
    data_paths,
    entry,
    equality_deletes,
    local,
    new_catalog,
    new_table,
    plain,
    position_deletes,
    read_by_pyiceberg,
    vectors,
    with_entries,
)
from tests.interop.lakes import alone, by_duckdb
from tests.reference.duckdb_lake import open_lake

ID, TEXT = {"id!": LongType()}, {"id!": LongType(), "name": StringType()}


@pytest.fixture
def lake(sqlite_catalog):
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake:
        yield lake


@pytest.fixture
def agree(lake, sqlite_catalog):
    """Return a function that compares what pyiceberg reads with what DuckDB and we read of table t."""

    def check(metadata_location: str, snapshot_id: int | None = None, where: str = "true") -> int:
        rows = read_by_pyiceberg(metadata_location, snapshot_id)
        with open_lake(sqlite_catalog) as duck:
            assert plain(duck.arrow(f"FROM t WHERE {where}")) == plain(rows)
            assert duck.sql("SELECT count(*) FROM t") == [(rows.num_rows,)]
        assert plain(lake.read_arrow("t")) == plain(rows)
        assert lake.verify() == []
        return rows.num_rows

    return check


@pytest.fixture(scope="module")
def process():
    """A process of its own for DuckDB: two copies of SQLite in one process break each other's locks."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as executor:
        yield executor


@pytest.fixture
def elsewhere(process, sqlite_catalog):
    """Return a function that runs SQL on the lake in that process."""
    return lambda sql: process.submit(_run_sql, sqlite_catalog, sql).result()


def _run_sql(catalog, sql: str):
    return by_duckdb(catalog, sql, data_inlining_row_limit=0)


def add(lake: Lake, source: str, **rules):
    return lake.add_table("t", source, "iceberg", **{"create_table": True, **rules})


def untouched(lake: Lake) -> bool:
    """Whether nothing was written: no table, no snapshot, no file."""
    folder = Path(lake.data_path)
    return lake.current_snapshot().id == 0 and not [one for one in folder.rglob("*") if one.is_file()]


EVERY_TYPE = {
    "b": BooleanType(),
    "i": IntegerType(),
    "l": LongType(),
    "f": FloatType(),
    "d": DoubleType(),
    "dec": DecimalType(9, 2),
    "big": DecimalType(38, 4),
    "day": DateType(),
    "at": TimeType(),
    "ts": TimestampType(),
    "tz": TimestamptzType(),
    "s": StringType(),
    "u": UUIDType(),
    "fix": FixedType(3),
    "bin": BinaryType(),
    "ls": ListType(20, StringType(), element_required=False),
    "st": StructType(NestedField(21, "x", IntegerType()), NestedField(22, "y", StringType())),
    "m": MapType(23, StringType(), 24, LongType(), value_required=False),
}


def test_columns_of_every_type_are_created_and_read(lake, agree, tmp_path):
    table = new_table(tmp_path / "ice", EVERY_TYPE)
    rows = {
        "b": [True, None],
        "i": [2**31 - 1, None],
        "l": [-(2**63), None],
        "f": [0.5, None],
        "d": [float("inf"), None],
        "dec": [Decimal("-1.50"), None],
        "big": [Decimal("9" * 34 + ".1234"), None],
        "day": [date(1, 1, 1), None],
        "at": [time(23, 59, 59, 999999), None],
        "ts": [datetime(1969, 12, 31, 23, 59, 59, 999999), None],  # noqa: DTZ001 - without zone
        "tz": [datetime(2024, 7, 1, 12, tzinfo=UTC), None],
        "s": ["é\n", None],
        "u": [bytes(range(16)), None],
        "fix": [b"abc", None],
        "bin": [b"\x00\xff", None],
        "ls": [["a", None], None],
        "st": [{"x": 1, "y": "z"}, None],
        "m": [[("k", 1)], None],
    }
    append(table, **rows)

    committed = add(lake, table.metadata_location)

    assert committed is not None
    assert agree(table.metadata_location) == 2
    types = [str(column.type) for column in lake.table_snapshot("t").schema.columns]
    assert types == [
        *("boolean", "int32", "int64", "float32", "float64", "decimal(9,2)", "decimal(38,4)", "date", "time"),
        *("timestamp", "timestamptz", "varchar", "uuid", "blob", "blob"),
        *("varchar[]", "struct(x int32, y varchar)", "map(varchar, int64)"),
    ]


def test_columns_that_were_renamed_added_dropped_and_widened_are_found_by_their_ids(lake, agree, tmp_path):
    table = new_table(
        tmp_path / "ice", {"id!": LongType(), "a": StringType(), "gone": IntegerType(), "n": IntegerType()}
    )
    append(table, id=[1, 2], a=["x", None], gone=[7, 8], n=[1, 2])
    with table.update_schema() as schema:
        schema.rename_column("a", "b").delete_column("gone").update_column("n", LongType())
    with table.update_schema() as schema:
        schema.add_column("gone", StringType()).add_column("a", StringType())
    append(table, id=[3], b=["y"], n=[2**40], gone=["back"], a=["new"])

    add(lake, table.metadata_location)

    assert agree(table.metadata_location) == 3
    assert agree(table.metadata_location, where="gone IS NULL OR gone = 'back'") == 3
    assert lake.table_snapshot("t").schema.names == ("id", "b", "n", "gone", "a")


def test_required_columns_are_not_null(lake, tmp_path):
    table = new_table(tmp_path / "ice", TEXT)
    append(table, id=[1], name=[None])

    add(lake, table.metadata_location)

    assert [one.nullable for one in lake.table_snapshot("t").schema.columns] == [False, True]


def test_an_earlier_snapshot_is_added_with_its_own_columns(lake, agree, tmp_path):
    table = new_table(tmp_path / "ice", TEXT)
    append(table, id=[1], name=["a"])
    first = table.current_snapshot().snapshot_id
    with table.update_schema() as schema:
        schema.rename_column("name", "title")
    append(table, id=[2], title=["b"])

    add(lake, table.metadata_location, snapshot_id=first)

    assert agree(table.metadata_location, snapshot_id=first) == 1
    assert lake.table_snapshot("t").schema.names == ("id", "name")


def test_a_table_of_version_1_has_its_rows(lake, agree, tmp_path):
    table = new_table(tmp_path / "ice", TEXT, ["name"], **{"format-version": "1"})
    append(table, id=[1, 2], name=["a", "b"])
    append(table, id=[3], name=["a"])

    add(lake, table.metadata_location)

    assert table.format_version == 1
    assert agree(table.metadata_location) == 3


def test_rows_that_pyiceberg_deleted_or_overwrote_stay_away(lake, agree, tmp_path):
    table = new_table(tmp_path / "ice", TEXT)
    append(table, id=list(range(50)), name=["x"] * 50)
    append(table, id=[100], name=["y"])
    table.delete("id < 10")
    table.delete("id = 100")

    add(lake, table.metadata_location)

    assert agree(table.metadata_location) == 40


# Partitions

PARTITIONED = [
    (["name"], ["name"], {("a",), ("b",), (None,)}),
    (["bucket[4](id)"], ["bucket(4, id)"], None),
    (["bucket[3](name)"], ["bucket(3, name)"], None),
    (["year(ts)"], ["year(ts)"], {("1969",), ("2024",), (None,)}),
    (["month(ts)"], ["year(ts)", "month(ts)"], {("1969", "12"), ("2024", "2"), (None, None)}),
    (
        ["day(ts)", "name"],
        ["year(ts)", "month(ts)", "day(ts)", "name"],
        {("1969", "12", "31", "a"), ("2024", "2", "29", "b"), (None, None, None, None)},
    ),
    (
        ["hour(ts)"],
        ["year(ts)", "month(ts)", "day(ts)", "hour(ts)"],
        {("1969", "12", "31", "23"), ("2024", "2", "29", "5"), (None,) * 4},
    ),
    (["day"], ["day"], {("2024-02-29",), ("0001-01-01",), (None,)}),
    (["bucket[5](day)"], ["bucket(5, day)"], None),
    (["price"], ["price"], {("1.50",), ("-0.01",), (None,)}),
    (["truncate[1](name)"], [], {()}),
    (["bucket[4](price)", "id"], ["id"], {("1",), ("2",), ("3",)}),
]


@pytest.mark.parametrize(
    ("keys", "ours", "values"),
    PARTITIONED,
    ids=lambda one: "-".join(one or "?") if isinstance(one, list) else "",
)
def test_partition_keys_that_ducklake_has_are_kept(lake, agree, elsewhere, tmp_path, keys, ours, values):
    columns = {**TEXT, "ts": TimestampType(), "day": DateType(), "price": DecimalType(9, 2)}
    table = new_table(tmp_path / "ice", columns, keys)
    append(
        table,
        id=[1, 2, 3],
        name=["a", "b", None],
        ts=[datetime(1969, 12, 31, 23, 59), datetime(2024, 2, 29, 5), None],  # noqa: DTZ001
        day=[date(2024, 2, 29), date(1, 1, 1), None],
        price=[Decimal("1.50"), Decimal("-0.01"), None],
    )

    add(lake, table.metadata_location)

    agree(table.metadata_location)
    snapshot = lake.table_snapshot("t", with_files=True)
    found = [one.partition_values for one in snapshot.files]
    assert values is None or set(found) == values
    if ours:  # the reference partitions the same rows alike
        elsewhere(
            "CREATE TABLE theirs AS FROM t LIMIT 0; "
            f"ALTER TABLE theirs SET PARTITIONED BY ({', '.join(ours)}); INSERT INTO theirs FROM t"
        )
        theirs = lake.table_snapshot("theirs", with_files=True)
        assert sorted(map(repr, found)) == sorted(repr(one.partition_values) for one in theirs.files)


def test_counts_since_1970_are_icebergs_where_the_lake_has_them(new_catalog, tmp_path):
    table = new_table(tmp_path / "ice", {"id!": LongType(), "ts": TimestampType()}, ["day(ts)"])
    days = [datetime(1969, 12, 31), datetime(2024, 2, 29, 5), None]  # noqa: DTZ001
    append(table, id=[1, 2, 3], ts=days)
    catalog = new_catalog("sqlite", "1.1")
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path, version="1.1") as lake:
        with lake.transaction() as tx:
            tx.create_table("t", {"id": "int64", "ts": "timestamp"}, ["epoch_day(ts)", "epoch_month(ts)"])
        add(lake, table.metadata_location)

        files = lake.table_snapshot("t", with_files=True).files
        values = {one.partition_values for one in files}
        assert values == {("-1", "-1"), ("19782", "649"), (None, None)}
        assert plain(lake.read_arrow("t")) == plain(read_by_pyiceberg(table.metadata_location))


def test_files_of_an_older_partitioning_have_what_their_footers_tell(lake, agree, tmp_path):
    table = new_table(tmp_path / "ice", {**TEXT, "n": LongType()}, ["name"])
    append(table, id=[1, 2], name=["a", "b"], n=[1, 4])
    with table.update_spec() as spec:
        spec.remove_field("key_0").add_field("n", "bucket[4]", "by_n")
    append(table, id=[3, 4], name=["a", "b"], n=[3, 6])
    append(table, id=[5], name=["c"], n=[None])

    add(lake, table.metadata_location)

    assert agree(table.metadata_location) == 5
    files = lake.table_snapshot("t", with_files=True).files
    assert all(len(one.partition_values) == 1 for one in files)


def test_a_file_whose_values_nobody_knows_is_added_without(lake, agree, tmp_path):
    table = new_table(tmp_path / "ice", TEXT)
    append(table, id=[1, 2, 3], name=["a", "b", "c"])
    alone(lake).create_table("t", {"id": "int64", "name": "varchar"}, ["id"])

    add(lake, table.metadata_location)

    assert agree(table.metadata_location, where="id IN (1, 2, 3)") == 3
    (file,) = lake.table_snapshot("t", with_files=True).files
    assert (file.partition_values, file.partition_id) == ((), None)


# Deletes


@pytest.mark.parametrize("write", [position_deletes, vectors])
def test_deleted_positions_become_delete_files(lake, agree, sqlite_catalog, tmp_path, write):
    table = new_table(tmp_path / "ice", TEXT)
    append(table, id=list(range(100)), name=["x"] * 100)
    append(table, id=list(range(100, 110)), name=["y"] * 10)
    append(table, id=[200], name=["whole"])
    paths = data_paths(table)
    sizes = {path: pq.read_metadata(local(path)).num_rows for path in paths}
    gone = {path: {100: [0, 7, 99], 10: [9], 1: [0]}[rows] for path, rows in sizes.items()}
    made = write(table, gone)
    metadata = with_entries(table, made if isinstance(made, list) else [made])

    files = alone(lake).add_table("t", metadata, "iceberg", create_table=True)

    assert agree(metadata) == 106
    assert sorted(file.live_count for file in files) == [9, 97]  # a file without rows is left out
    assert by_duckdb(sqlite_catalog, "SELECT count(*) FROM t WHERE id IN (0, 7, 99, 109, 200)") == [(0,)]
    inserted = [
        one
        for one in lake.changes("t", start=1, end=1).read_arrow()["change_type"].to_pylist()
        if one == "insert"
    ]
    assert len(inserted) == 106


@pytest.mark.both_versions
def test_partitions_and_deletes_are_added_to_every_catalog(catalog, tmp_path):
    table = new_table(tmp_path / "ice", TEXT, ["bucket[2](id)"])
    append(table, id=list(range(100)), name=["x"] * 100)
    parts = {task.file.file_path: task.file.partition for task in table.scan().plan_files()}
    gone = [position_deletes(table, {path: [0, 1]}, partition=part) for path, part in parts.items()]
    metadata = with_entries(table, gone)
    rows = plain(read_by_pyiceberg(metadata))

    with Lake.create(catalog.sqlalchemy_url, catalog.data_path, version=catalog.spec_version) as lake:
        add(lake, metadata)

        assert plain(lake.read_arrow("t")) == rows
        assert lake.verify() == []
        with open_lake(catalog) as duck:
            assert plain(duck.arrow("FROM t")) == rows
        assert alone(lake).delete_rows("t", "id < 50") == 50 - sum(id_ < 50 for id_ in _missing(rows))
        assert lake.verify() == []


def _missing(rows: list[str]) -> set[int]:
    """Return which of the hundred rows are not among those."""
    return set(range(100)) - {int(row.strip("[").partition(",")[0]) for row in rows}


def test_deletes_of_several_files_are_joined_and_older_ones_do_not_count(lake, agree, tmp_path):
    table = new_table(tmp_path / "ice", ID)
    append(table, id=list(range(20)))
    (path,) = data_paths(table)
    first = position_deletes(table, {path: [1, 2]})
    second = position_deletes(table, {path: [2, 3], "file:///no/longer/there.parquet": [5]})
    metadata = with_entries(table, [first, second])

    add(lake, metadata)

    assert agree(metadata) == 17

    older = position_deletes(table, {path: [9]})
    alone(lake).drop_table("t")
    assert add_copy(lake, with_entries(table, [older], sequence_number=0)) == 20


def add_copy(lake: Lake, metadata: str) -> int:
    """Add a table whose files the lake had: it has to be another lake's."""
    folder = Path(lake.data_path).parent / "other"
    with Lake.create(f"sqlite:///{folder}.sqlite", f"{folder}/") as other:
        add(other, metadata)
        return other.read_arrow("t").num_rows


def test_deletion_vectors_are_written_where_the_lake_asks_for_them(lake, agree, tmp_path):
    table = new_table(tmp_path / "ice", ID)
    append(table, id=list(range(20)))
    metadata = with_entries(table, [position_deletes(table, {data_paths(table)[0]: [1]})])
    lake.set_option("write_deletion_vectors", "true")

    add(lake, metadata)

    assert agree(metadata) == 19
    (file,) = lake.table_snapshot("t", with_files=True).files
    assert file.delete_file.format == "puffin"


@pytest.mark.parametrize(("names", "left"), [({}, [1, 2, 3]), ({"referenced_data_file": None}, [2, 3])])
def test_an_entry_of_a_container_counts_for_its_data_file(lake, sqlite_catalog, tmp_path, names, left):
    """The other one's vector was taken back, or replaced; pyiceberg counts every vector of a container."""
    table = new_table(tmp_path / "ice", ID)
    append(table, id=[1, 2])
    append(table, id=[3, 4])
    gone = {path: pq.read_table(local(path))["id"].to_pylist() for path in data_paths(table)}
    entries = vectors(table, {path: [0 if 1 in rows else 1] for path, rows in gone.items()}, **names)
    of_four = next(place for place, rows in enumerate(gone.values()) if 4 in rows)

    add(lake, with_entries(table, [entries[of_four]]))

    assert sorted(lake.read_arrow("t")["id"].to_pylist()) == left
    assert by_duckdb(sqlite_catalog, "SELECT id FROM t ORDER BY ALL") == [(one,) for one in left]


def test_rows_of_added_files_are_deleted_and_compacted_like_others(lake, sqlite_catalog, tmp_path):
    table = new_table(tmp_path / "ice", TEXT)
    append(table, id=list(range(100)), name=["x"] * 100)
    metadata = with_entries(table, [position_deletes(table, {data_paths(table)[0]: [0, 1]})])
    add(lake, metadata)

    assert alone(lake).delete_rows("t", "id < 50") == 48
    with open_lake(sqlite_catalog) as duck:
        assert duck.sql("SELECT count(*), min(id) FROM t") == [(50, 50)]
        assert duck.sql("SELECT count(*) FROM t AT (VERSION => 1)") == [(98,)]
    assert lake.read_arrow("t", at=1).num_rows == 98
    assert lake.verify() == []
    lake.expire_snapshots(keep_last=1)
    assert alone(lake).delete_rows("t", "id < 100") == 50
    assert lake.read_arrow("t").num_rows == 0


def test_duckdb_deletes_and_updates_added_rows(lake, tmp_path, elsewhere):
    table = new_table(tmp_path / "ice", TEXT)
    append(table, id=list(range(100)), name=["x"] * 100)
    add(lake, with_entries(table, [position_deletes(table, {data_paths(table)[0]: [0, 1]})]))

    elsewhere("DELETE FROM t WHERE id < 10")
    elsewhere("UPDATE t SET name = 'new' WHERE id >= 90")

    rows = lake.read_arrow("t")
    assert (rows.num_rows, rows["name"].to_pylist().count("new")) == (90, 10)
    assert lake.verify() == []


# Where the table lies


def test_a_folder_means_its_newest_metadata(lake, agree, tmp_path):
    table = new_table(tmp_path / "ice", ID)
    append(table, id=[1])
    append(table, id=[2])

    add(lake, str(local(table.location())))

    assert agree(table.metadata_location) == 2


def test_a_hint_names_the_metadata_and_writers_may_have_died_before_they_changed_it(lake, agree, tmp_path):
    table = new_table(tmp_path / "ice", ID)
    append(table, id=[1])
    folder = local(table.location()) / "metadata"
    names = sorted(folder.glob("*.metadata.json"))
    for number, path in enumerate(names, 1):
        shutil.copy(path, folder / f"v{number}.metadata.json")
        path.unlink()
    (folder / "version-hint.text").write_text("1")
    (folder / "v7.metadata.json").write_text("a metadata file that no reader comes to")

    add(lake, str(folder.parent))

    assert agree(f"file://{folder}/v2.metadata.json") == 1


def test_two_newest_metadata_files_are_not_guessed_between(lake, tmp_path):
    table = new_table(tmp_path / "ice", ID)
    path = local(table.metadata_location)
    shutil.copy(path, path.with_name("00000-other.metadata.json"))

    with pytest.raises(
        errors.InvalidInputError, match=r"several metadata files of version 0: 00000-.*catalog names"
    ):
        add(lake, str(local(table.location())))
    assert untouched(lake)


def test_a_catalog_names_the_metadata(lake, agree, tmp_path):
    table = new_table(tmp_path / "ice", ID)
    append(table, id=[1])
    catalog = {
        "name": "source",
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/ice/catalog.db",
        "warehouse": f"file://{tmp_path}",
    }

    add(lake, "sales.orders", catalog=catalog)

    assert agree(table.metadata_location) == 1
    with pytest.raises(errors.SourceNotFoundError, match=r"sales\.none"):
        lake.add_table("u", "sales.none", "iceberg", catalog=catalog, create_table=True)


def test_a_table_without_snapshot_is_created_without_rows(lake, tmp_path):
    table = new_table(tmp_path / "ice", TEXT, ["name"])

    assert add(lake, table.metadata_location) is not None
    assert lake.read_arrow("t").num_rows == 0
    assert add(lake, table.metadata_location) is None


def test_a_commit_key_adds_a_table_once(lake, agree, tmp_path):
    table = new_table(tmp_path / "ice", ID)
    append(table, id=[1])

    first = add(lake, table.metadata_location, commit_key="once")
    again = add(lake, table.metadata_location, commit_key="once")

    assert (again.id, again.is_earlier, first.is_earlier) == (first.id, True, False)
    assert agree(table.metadata_location) == 1


# Files and columns of other kinds


def test_files_without_ids_are_read_by_the_name_mapping(lake, agree, tmp_path):
    nested = StructType(NestedField(21, "x", IntegerType()), NestedField(22, "y", StringType()))
    columns = {
        "id": LongType(),
        "old": StringType(),
        "st": nested,
        "ls": ListType(23, LongType(), element_required=False),
    }
    table = new_table(tmp_path / "ice", columns)
    rows = pa.table(
        {"ls": [[1, 2]], "st": [{"y": "b", "x": 1}], "old": ["a"], "id": [1]},
        schema=pa.schema(
            [table.schema().as_arrow().field(name).remove_metadata() for name in reversed(columns)]
        ),
    )
    path = f"{table.location()}/data/theirs.parquet"
    local(path).parent.mkdir(exist_ok=True)
    pq.write_table(_without_ids(rows), local(path))
    table.add_files([path])
    with table.update_schema() as schema:
        schema.rename_column("old", "new").rename_column("st.x", "z")
    append(table, id=[2], new=["b"], st=[{"z": 2, "y": "c"}], ls=[None])

    add(lake, table.metadata_location)

    assert agree(table.metadata_location) == 2


def _without_ids(rows: pa.Table) -> pa.Table:
    bare = pa.Table.from_pylist(rows.to_pylist())
    place = bare.schema.get_field_index("st")
    if place < 0:
        return bare
    inner = pa.struct([("x", pa.int32()), ("y", pa.string())])
    return bare.set_column(place, "st", bare["st"].cast(inner))


def test_files_without_ids_and_without_a_name_mapping_are_refused(lake, tmp_path):
    table = new_table(tmp_path / "ice", ID)
    append(table, id=[1])
    path = local(data_paths(table)[0])
    pq.write_table(_without_ids(pq.read_table(path)), path)

    with pytest.raises(
        errors.UnsupportedFeatureError, match=r"field id has no id, and the table has no name mapping"
    ):
        add(lake, table.metadata_location)
    assert untouched(lake)


def test_a_default_of_a_later_column_is_kept_for_older_files(lake, sqlite_catalog, tmp_path):
    """Pyiceberg writes no version 3, which has defaults: they are put into its metadata."""
    table = new_table(tmp_path / "ice", ID)
    append(table, id=[1])
    with table.update_schema() as schema:
        schema.add_column("note", StringType()).add_column("day", DateType()).add_column("n", LongType())
    append(table, id=[2], note=[None], day=[None], n=[5])
    schemas = [one.model_dump(by_alias=True, mode="json") for one in table.schemas().values()]
    defaults = {"note": ("none", "later"), "day": ("2024-02-29", None)}
    for field in schemas[-1]["fields"]:
        first, later = defaults.get(field["name"], (None, None))
        field |= {"initial-default": first, "write-default": later}
    metadata = changed(table, format_version=3, next_row_id=2, schemas=schemas)

    add(lake, metadata)

    with open_lake(sqlite_catalog) as duck:
        assert duck.sql("FROM t ORDER BY id") == [(1, "none", date(2024, 2, 29), None), (2, None, None, 5)]
    assert plain(lake.read_arrow("t")) == plain(read_by_pyiceberg(metadata))
    defaults = [str(one.default.value) for one in lake.table_snapshot("t").schema.columns]
    assert defaults == ["NULL", "later", "NULL", "NULL"]


HIVE = {"id!": LongType(), "name": StringType(), "n": IntegerType()}


@pytest.mark.parametrize(
    ("folder", "values"),
    [("name=a%20b/n=7", ("a b", 7)), ("n=-1/name=__HIVE_DEFAULT_PARTITION__", (None, -1))],
)
def test_partition_columns_that_files_of_hive_lack_come_from_the_folders(
    lake, sqlite_catalog, tmp_path, folder, values
):
    table = new_table(tmp_path / "ice", HIVE, ["name", "n"])
    append(table, id=[1], name=["x"], n=[1])
    metadata = with_entries(table, [_lacking_file(table, f"{folder}/a.parquet", values)], as_data=True)

    add(lake, metadata)

    expected = [(1, "x", 1), (2, *values)]
    with open_lake(sqlite_catalog) as duck:
        assert duck.sql("FROM t ORDER BY id") == expected
        assert duck.sql("SELECT count(*) FROM t WHERE n <> 1") == [(1,)]
    assert [tuple(row.values()) for row in lake.read_arrow("t").sort_by("id").to_pylist()] == expected
    assert lake.verify() == []


@pytest.mark.parametrize("folder", ["data", "name=other/n=7", "name=a/n=seven"])
def test_partition_columns_that_no_folder_has_are_refused(lake, tmp_path, folder):
    table = new_table(tmp_path / "ice", HIVE, ["name", "n"])
    append(table, id=[1], name=["x"], n=[1])
    metadata = with_entries(table, [_lacking_file(table, f"{folder}/a.parquet", ("a", 7))], as_data=True)

    with pytest.raises(errors.UnsupportedFeatureError, match="does not have the partition column n"):
        add(lake, metadata)
    assert untouched(lake)


def _lacking_file(table, name: str, values: tuple[object, ...]):
    """Write a file without its partition columns, as Hive does, and return its entry."""
    path = local(f"{table.location()}/data/{name}")
    path.parent.mkdir(parents=True, exist_ok=True)
    field = pa.field("id", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "1"})
    pq.write_table(pa.table([[2]], schema=pa.schema([field])), path)
    return entry(f"file://{path}", 1, content=DataFileContent.DATA, partition=Record(*values))


def test_duckdb_compacts_added_files_with_deletes(lake, elsewhere, tmp_path):
    table = new_table(tmp_path / "ice", TEXT, ["bucket[2](id)"])
    append(table, id=list(range(100)), name=["x"] * 100)
    append(table, id=list(range(100, 200)), name=["y"] * 100)
    gone = {path: [0, 1] for path in data_paths(table)}
    parts = {task.file.file_path: task.file.partition for task in table.scan().plan_files()}
    entries = [position_deletes(table, {path: rows}, partition=parts[path]) for path, rows in gone.items()]
    add(lake, with_entries(table, entries))
    before = plain(lake.read_arrow("t"))

    elsewhere("CALL ducklake_rewrite_data_files('lake', delete_threshold => 0)")
    elsewhere("CALL ducklake_merge_adjacent_files('lake')")

    assert plain(lake.read_arrow("t")) == before
    assert len(before) == 192
    assert len(lake.table_snapshot("t", with_files=True).files) == 2
    assert lake.verify() == []


# An existing table


def test_columns_of_an_existing_table_are_matched_by_name_and_may_be_wider(lake, tmp_path):
    table = new_table(tmp_path / "ice", {"ID": IntegerType(), "s": StringType()})
    append(table, ID=[1], s=["a"])
    with lake.transaction() as tx:
        tx.create_table("t", {"more": "int32", "s": "varchar", "id": "int64"})
        tx.drop_column("t", "more")

    add(lake, table.metadata_location, create_table=False)

    assert lake.read_arrow("t").to_pylist() == [{"s": "a", "id": 1}]


@pytest.mark.parametrize("dropped", ["a", "A"])
def test_names_that_differ_in_letter_case_alone_are_refused(lake, tmp_path, dropped):
    table = new_table(tmp_path / "ice", {"a": LongType(), "A": LongType()})
    append(table, a=[1], A=[10])
    with table.update_schema() as schema:
        schema.delete_column(dropped)

    with pytest.raises(errors.SchemaMismatchError, match=r"appears twice in the file \(names are case-"):
        add(lake, table.metadata_location)


def test_columns_that_differ_are_all_named(lake, tmp_path):
    table = new_table(tmp_path / "ice", {"id": LongType(), "a": StringType(), "n": DateType()})
    append(table, id=[1], a=["x"], n=[date(2024, 1, 1)])
    alone(lake).create_table("t", {"id": "int32", "b": "varchar", "n": "timestamp"})

    with pytest.raises(errors.SchemaMismatchError) as caught:
        add(lake, table.metadata_location)

    assert caught.value.differences == (
        "column id is int32 in the table, int64 in the source",
        "column a of the source is not in the table",
        "column n is timestamp in the table, date in the source",
        "column b of the table is not in the source",
    )


def test_a_table_that_does_not_exist_is_created_only_if_asked(lake, tmp_path):
    table = new_table(tmp_path / "ice", ID)

    with pytest.raises(errors.TableNotFoundError):
        add(lake, table.metadata_location, create_table=False)
    assert untouched(lake)


def test_a_column_with_another_default_in_the_lake_is_refused_where_files_lack_it(lake, tmp_path):
    table = new_table(tmp_path / "ice", ID)
    append(table, id=[1])
    with table.update_schema() as schema:
        schema.add_column("name", StringType())
    with lake.transaction() as tx:
        tx.create_table("t", {"id": "int64"})
        tx.add_column("t", "name", "varchar", default="none")

    with pytest.raises(errors.SchemaMismatchError, match="default 'none' in the table, None in the source"):
        add(lake, table.metadata_location)


def test_a_table_is_not_added_twice(lake, tmp_path):
    table = new_table(tmp_path / "ice", ID)
    append(table, id=[1])
    add(lake, table.metadata_location)

    with pytest.raises(errors.InvalidInputError, match="is or was a data file of this lake"):
        add(lake, table.metadata_location)


# What cannot be carried over


def test_equality_deletes_are_named(lake, tmp_path):
    table = new_table(tmp_path / "ice", ID)
    append(table, id=[1])
    metadata = with_entries(table, [equality_deletes(table)])

    with pytest.raises(errors.UnsupportedFeatureError, match=r"equality delete file .*equal\.parquet"):
        add(lake, metadata)
    assert untouched(lake)


@pytest.mark.parametrize(
    ("said", "words"), [({"key_metadata": b"key"}, "is encrypted"), ({"file_format": "ORC"}, "in the format")]
)
def test_files_that_ducklake_cannot_read_are_named(lake, tmp_path, said, words):
    table = new_table(tmp_path / "ice", ID)
    append(table, id=[1])
    metadata = with_entries(table, [position_deletes(table, {data_paths(table)[0]: [0]}, **said)])

    with pytest.raises(errors.UnsupportedFeatureError, match=words):
        add(lake, metadata)
    assert untouched(lake)


def test_files_with_row_lineage_are_refused_because_duckdb_could_not_change_them(lake, tmp_path):
    table = new_table(tmp_path / "ice", ID)
    append(table, id=[1])
    path = local(data_paths(table)[0])
    fields = [
        pa.field("id", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "1"}),
        pa.field("_row_id", pa.int64(), metadata={"PARQUET:field_id": "2147483540"}),
    ]
    pq.write_table(pa.table([[1], [5]], schema=pa.schema(fields)), path)

    with pytest.raises(errors.UnsupportedFeatureError, match=r"column _row_id.*2147483540"):
        add(lake, table.metadata_location)
    assert untouched(lake)


def test_an_encrypted_lake_takes_no_files(sqlite_catalog, tmp_path):
    table = new_table(tmp_path / "ice", ID)
    append(table, id=[1])
    with (
        Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path, encrypted=True) as lake,
        pytest.raises(errors.UnsupportedFeatureError, match="the lake is encrypted"),
    ):
        add(lake, table.metadata_location)


# Metadata that lies, and files that are not what it says


def one_file(tmp_path: Path):
    table = new_table(tmp_path / "ice", TEXT)
    append(table, id=[1, 2], name=["a", "b"])
    return table, local(data_paths(table)[0])


def test_a_missing_file_is_named(lake, tmp_path):
    table, path = one_file(tmp_path)
    path.unlink()

    with pytest.raises(errors.StorageError, match=path.name):
        add(lake, table.metadata_location)
    assert untouched(lake)


def test_another_file_in_its_place_is_named(lake, tmp_path):
    table, path = one_file(tmp_path)
    pq.write_table(pq.read_table(path).slice(0, 1), path)

    with pytest.raises(errors.InvalidInputError, match=r"has 1 rows, and 2 by the table's metadata"):
        add(lake, table.metadata_location)
    assert untouched(lake)


def test_positions_that_a_file_does_not_have_are_refused(lake, tmp_path):
    table, path = one_file(tmp_path)
    metadata = with_entries(table, [position_deletes(table, {f"file://{path}": [2]})])

    with pytest.raises(errors.InvalidInputError, match="has 2 rows, and position 2"):
        add(lake, metadata)
    assert untouched(lake)


def test_a_damaged_delete_file_is_named(lake, tmp_path):
    table, path = one_file(tmp_path)
    deletes = position_deletes(table, {f"file://{path}": [0]})
    local(deletes.file_path).write_bytes(b"PAR1 nothing PAR1")
    metadata = with_entries(table, [deletes])

    with pytest.raises(errors.StorageError, match=r"-deletes\.parquet"):
        add(lake, metadata)
    assert untouched(lake)


def test_a_partition_value_that_is_not_the_files_is_refused(lake, tmp_path):
    table = new_table(tmp_path / "ice", TEXT, ["name"])
    append(table, id=[1], name=["a"])
    path = local(data_paths(table)[0])
    other = new_table(tmp_path / "other", TEXT)
    append(other, id=[1], name=["b"])
    shutil.copy(local(data_paths(other)[0]), path)

    with pytest.raises(
        errors.InvalidInputError, match=r"value 'b' of name, and 'a' by the table's metadata|bytes"
    ):
        add(lake, table.metadata_location)
    assert untouched(lake)


def test_files_outside_the_tables_folder_need_a_permission(lake, agree, tmp_path):
    table = new_table(tmp_path / "ice", ID, **{"write.data.path": f"file://{tmp_path}/elsewhere"})
    append(table, id=[1])

    with pytest.raises(errors.UntrustedValueError, match=r"lies in none of the folders .*allowed_paths"):
        add(lake, table.metadata_location)
    assert untouched(lake)

    add(lake, table.metadata_location, allowed_paths=[f"{tmp_path}/elsewhere"])
    assert agree(table.metadata_location) == 1


def test_manifests_are_not_read_elsewhere(lake, tmp_path):
    table = new_table(tmp_path / "ice", ID)
    append(table, id=[1])
    snapshots = [
        {**one.model_dump(by_alias=True), "manifest-list": "http://internal/x.avro"}
        for one in table.snapshots()
    ]
    for one in snapshots:
        one["summary"] = {"operation": "append"}

    with pytest.raises(errors.UntrustedValueError, match="http://internal"):
        add(lake, changed(table, snapshots=snapshots))


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"format-version": 9}', '{"format-version": 2, "location": 5}']
)
def test_what_is_no_metadata_is_said_to_be_none(lake, tmp_path, text):
    (tmp_path / "metadata").mkdir()
    (tmp_path / "metadata" / "v1.metadata.json").write_text(text)

    with pytest.raises(errors.StorageError, match=r"Iceberg's metadata in .*v1\.metadata\.json"):
        add(lake, str(tmp_path))


def test_a_damaged_manifest_is_said_to_be_one(lake, tmp_path):
    table = new_table(tmp_path / "ice", ID)
    append(table, id=[1])
    local(table.current_snapshot().manifest_list).write_bytes(b"no manifest list")

    with pytest.raises(errors.StorageError, match="Cannot read the metadata of"):
        add(lake, table.metadata_location)


def odd_documents(document: object):
    """Yield copies of a JSON document, each with one value that is missing or another one."""
    for path in _paths(document):
        for value in (_GONE, None, -1, "odd", [], {}, 2**70):
            copy = json.loads(json.dumps(document))
            *above, last = path
            parent = copy
            for step in above:
                parent = parent[step]
            if value is _GONE:
                del parent[last]
            else:
                parent[last] = value
            yield copy


_GONE = object()


def _paths(value: object):
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, child in steps:
        yield (step,)
        yield from ((step, *below) for below in _paths(child))


def test_odd_metadata_is_read_or_is_an_error_of_ours(tmp_path):
    table = new_table(tmp_path / "ice", TEXT, ["bucket[2](id)"])
    append(table, id=[1, 2, 3], name=["a", "b", "c"])
    path = local(table.metadata_location)
    document = json.loads(path.read_text())
    source = metadata.Source(str(path), "iceberg")
    outcomes = Counter()
    for odd in odd_documents(document):
        path.write_text(json.dumps(odd))
        outcomes[outcome(source)] += 1

    assert outcomes["read"] > 50 and outcomes["refused"] > 50  # noqa: PT018 - both of them happen


def outcome(source: metadata.Source) -> str:
    """Read a table's metadata; any other error than ours fails the test."""
    try:
        iceberg_table(source, open_filesystem)
    except errors.DuckLakeError:
        return "refused"
    return "read"


def test_a_manifest_with_other_files_than_its_list_says_is_refused(lake, tmp_path):
    table = new_table(tmp_path / "ice", ID)
    append(table, id=[1])
    (first,) = table.current_snapshot().manifests(table.io)
    with table.transaction() as tx, tx.update_snapshot().fast_append() as update:
        for one in table.scan().plan_files():
            update.append_data_file(one.file)
            update.append_data_file(one.file)
    second = next(
        one
        for one in table.current_snapshot().manifests(table.io)
        if one.manifest_path != first.manifest_path
    )
    shutil.copy(local(first.manifest_path), local(second.manifest_path))

    with pytest.raises(errors.StorageError, match="has 1 files, and 2 new and 0 older ones"):
        add(lake, table.metadata_location)
    assert untouched(lake)


def test_a_file_that_the_metadata_lists_twice_is_refused(lake, tmp_path):
    table = new_table(tmp_path / "ice", ID)
    append(table, id=[1])
    (task,) = table.scan().plan_files()

    with pytest.raises(errors.InvalidInputError, match="is given twice"):
        add(lake, with_entries(table, [task.file], as_data=True))
    assert untouched(lake)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"snapshot_id": 5}, "has no snapshot 5. It has: "),
        ({"version": 1}, "version does not go with the format iceberg"),
        ({"allowed_paths": ["data"]}, "allowed path 'data' is relative"),
    ],
)
def test_arguments_that_mean_nothing(lake, tmp_path, arguments, words):
    table = new_table(tmp_path / "ice", ID)

    with pytest.raises(errors.InvalidInputError, match=words):
        add(lake, table.metadata_location, **arguments)


def test_sources_that_are_none(lake, tmp_path):
    new_catalog(tmp_path / "ice")
    with pytest.raises(errors.InvalidInputError, match="relative"):
        add(lake, "orders")
    with pytest.raises(errors.SourceNotFoundError):
        add(lake, str(tmp_path / "ice"))
    with pytest.raises(errors.InvalidInputError, match="'hudi' is not one of iceberg, delta"):
        lake.add_table("t", "/x", "hudi")


@pytest.mark.parametrize("name", ["v2.metadata.json", "v2.gz.metadata.json"])
def test_metadata_that_needs_more_memory_than_the_limit_is_refused(lake, tmp_path, monkeypatch, name):
    monkeypatch.setattr(metadata, "MOST_BYTES", 2**28)
    folder = tmp_path / "ice" / "metadata"
    folder.mkdir(parents=True)
    if "gz" in name:
        with gzip.open(folder / name, "wb", 1) as file:
            file.write(bytes(2**28))
    else:
        with (folder / name).open("wb") as file:
            file.truncate(2**31)

    with pytest.raises(errors.StorageError, match="needs more than 256 MiB of memory"):
        add(lake, str(tmp_path / "ice"))
    assert untouched(lake)
