"""Which layouts, encodings and codecs of others a table takes: what DuckDB and our readers read alike."""

import base64
from datetime import datetime
from decimal import Decimal

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.parquet import encryption

from airflow_provider_ducklake.lake import errors
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.storage.parquet.readable import (
    CODECS,
    ENCODINGS,
    READ_CODECS,
    READ_ENCODINGS,
)
from tests.interop import footers
from tests.interop.footers import (
    BYTE_ARRAY,
    CODEC,
    ENTRY,
    INT32,
    INT64,
    LIST,
    MAP,
    OPTIONAL,
    REPEATED,
    REQUIRED,
    chunks_of,
    edited,
    element,
    parquet,
    with_schema,
)
from tests.interop.lakes import by_duckdb
from tests.reference.catalogs import file_catalog

NUMBERS = [[1, 2], None, [], [3]]
PAIRS = [[{"x": 1, "y": 2}, {"x": 3, "y": 4}], None, [], [{"x": 5, "y": 6}]]
ONES = [[{"x": 1}], None, [], [{"x": 2}, {"x": 3}]]
PRIMITIVE = pa.field("element", pa.int32(), nullable=False)
PAIR = pa.field(
    "element", pa.struct([pa.field("x", pa.int32(), nullable=False), ("y", pa.int32())]), nullable=False
)
ONE = pa.field("element", pa.struct([pa.field("x", pa.int32())]), nullable=False)
INNER = pa.field("element", pa.list_(PRIMITIVE), nullable=False)


def of(values, type_, *, nullable=True):
    return pa.table([pa.array(values, type_)], schema=pa.schema([pa.field("a", type_, nullable=nullable)]))


def no_null(values):
    return [one or [] for one in values]


GROUP = element("a", OPTIONAL, None, 1, LIST)
X, Y = element("x", REQUIRED, INT32), element("y", OPTIONAL, INT32)
# name → rows of today's layout, the elements and paths of the old one, its type in SQL
OLD = {
    "primitive array": (
        of(NUMBERS, pa.list_(PRIMITIVE)),
        [GROUP, element("array", REPEATED, INT32)],
        ["a.array"],
        "INT[]",
    ),
    "primitive element": (
        of(NUMBERS, pa.list_(PRIMITIVE)),
        [GROUP, element("element", REPEATED, INT32)],
        ["a.element"],
        "INT[]",
    ),
    "primitive tuple": (
        of(NUMBERS, pa.list_(PRIMITIVE)),
        [GROUP, element("a_tuple", REPEATED, INT32)],
        ["a.a_tuple"],
        "INT[]",
    ),
    "struct array": (
        of(PAIRS, pa.list_(PAIR)),
        [GROUP, element("array", REPEATED, None, 2), X, Y],
        ["a.array.x", "a.array.y"],
        "STRUCT(x INT, y INT)[]",
    ),
    "struct tuple": (
        of(PAIRS, pa.list_(PAIR)),
        [GROUP, element("a_tuple", REPEATED, None, 2), X, Y],
        ["a.a_tuple.x", "a.a_tuple.y"],
        "STRUCT(x INT, y INT)[]",
    ),
    "bag": (
        of(NUMBERS, pa.list_(PRIMITIVE)),
        [GROUP, element("bag", REPEATED, None, 1), element("array_element", REQUIRED, INT32)],
        ["a.bag.array_element"],
        "INT[]",
    ),
    "repeated primitive": (
        of(no_null(NUMBERS), pa.list_(PRIMITIVE), nullable=False),
        [element("a", REPEATED, INT32)],
        ["a"],
        "INT[]",
    ),
    "repeated struct": (
        of(no_null(PAIRS), pa.list_(PAIR), nullable=False),
        [element("a", REPEATED, None, 2), X, Y],
        ["a.x", "a.y"],
        "STRUCT(x INT, y INT)[]",
    ),
    "lists of lists": (
        of([[[1], []], None, [], [[2, 3]]], pa.list_(INNER)),
        [GROUP, element("array", REPEATED, None, 1, LIST), element("array", REPEATED, INT32)],
        ["a.array.array"],
        "INT[][]",
    ),
    "old in new": (
        of([[[1], []], None, [], [[2, 3]]], pa.list_(INNER)),
        [
            GROUP,
            element("list", REPEATED, None, 1),
            element("element", REQUIRED, None, 1, LIST),
            element("array", REPEATED, INT32),
        ],
        ["a.list.element.array"],
        "INT[][]",
    ),
    "new in old": (
        of([[[1], []], None, [], [[2, 3]]], pa.list_(INNER)),
        [
            GROUP,
            element("array", REPEATED, None, 1, LIST),
            element("list", REPEATED, None, 1),
            element("element", REQUIRED, INT32),
        ],
        ["a.array.list.element"],
        "INT[][]",
    ),
    "struct array of one": (
        of(ONES, pa.list_(ONE)),
        [GROUP, element("array", REPEATED, None, 1), element("x", OPTIONAL, INT32)],
        ["a.array.x"],
        "STRUCT(x INT)[]",
    ),
    "struct tuple of one": (
        of(ONES, pa.list_(ONE)),
        [GROUP, element("a_tuple", REPEATED, None, 1), element("x", OPTIONAL, INT32)],
        ["a.a_tuple.x"],
        "STRUCT(x INT)[]",
    ),
    "struct list of one": (
        of(ONES, pa.list_(ONE)),
        [GROUP, element("list", REPEATED, None, 1), element("x", OPTIONAL, INT32)],
        ["a.list.x"],
        "INT[]",
    ),
    "repeated struct of one": (
        of(no_null(ONES), pa.list_(ONE), nullable=False),
        [element("a", REPEATED, None, 1), element("x", OPTIONAL, INT32)],
        ["a.x"],
        "STRUCT(x INT)[]",
    ),
}

DIFFERENT = "of which DuckDB and pyarrow take the elements for different things"
REFUSED = {
    "struct array of one": DIFFERENT,
    "struct tuple of one": DIFFERENT,
    "repeated struct of one": DIFFERENT,
    "new in old": "pyarrow does not read its schema",
}


def make(catalog, sql: str) -> None:
    by_duckdb(catalog, f"CREATE TABLE t (a {sql})")


def add(catalog, path) -> None:
    with Lake.connect(catalog.sqlalchemy_url) as lake, lake.transaction() as tx:
        tx.add_data_files("t", [str(path)])


def seen(catalog) -> tuple[list, list]:
    """Return the column as we read it, and as DuckDB does."""
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        ours = lake.read_arrow("t")["a"].to_pylist()
        assert lake.verify() == []
    return ours, [row[0] for row in by_duckdb(catalog, "FROM t")]


@pytest.mark.parametrize("name", OLD)
def test_lists_of_old_layouts_are_read_as_duckdb_reads_them_or_refused(sqlite_catalog, tmp_path, name):
    rows, elements, paths, sql = OLD[name]
    path = tmp_path / "old.parquet"
    path.write_bytes(with_schema(parquet(rows, row_group_size=2), elements, paths))
    direct = [row[0] for row in duckdb.sql(f"FROM '{path}'").fetchall()]
    make(sqlite_catalog, sql)

    if name in REFUSED:
        with pytest.raises((errors.SchemaMismatchError, errors.UnsupportedFeatureError), match=REFUSED[name]):
            add(sqlite_catalog, path)
        return
    add(sqlite_catalog, path)

    assert seen(sqlite_catalog) == (direct, direct)


KEYS = {"k": 1, "l": 2}
ENTRIES = pa.map_(pa.string(), pa.field("value", pa.int32(), nullable=False))
KEY, VALUE = element("key", REQUIRED, BYTE_ARRAY, converted=0), element("value", REQUIRED, INT32)
MAPS = {
    "today": [element("a", OPTIONAL, None, 1, MAP), element("key_value", REPEATED, None, 2), KEY, VALUE],
    "old": [element("a", OPTIONAL, None, 1, MAP), element("map", REPEATED, None, 2, ENTRY), KEY, VALUE],
}


@pytest.mark.parametrize("name", MAPS)
def test_maps_of_old_layouts_are_read(sqlite_catalog, tmp_path, name):
    path = tmp_path / "map.parquet"
    rows = of([list(KEYS.items()), None], ENTRIES)
    path.write_bytes(with_schema(parquet(rows), MAPS[name], ["a.k.key", "a.k.value"]))
    make(sqlite_catalog, "MAP(VARCHAR, INT)")

    add(sqlite_catalog, path)

    assert seen(sqlite_catalog) == ([list(KEYS.items()), None], [KEYS, None])


@pytest.mark.parametrize("layout", ["today", "old"])
def test_old_lists_within_a_map_are_refused(sqlite_catalog, tmp_path, layout):
    path = tmp_path / "lists.parquet"
    rows = of([[("k", [1, 2])], None], pa.map_(pa.string(), pa.list_(PRIMITIVE)))
    lists = {
        "today": [element("list", REPEATED, None, 1), element("element", REQUIRED, INT32)],
        "old": [element("value_tuple", REPEATED, INT32)],
    }
    above = [*MAPS["today"][:2], KEY, element("value", OPTIONAL, None, 1, LIST)]
    leaf = {"today": "a.key_value.value.list.element", "old": "a.key_value.value.value_tuple"}[layout]
    path.write_bytes(with_schema(parquet(rows), [*above, *lists[layout]], ["a.key_value.key", leaf]))
    make(sqlite_catalog, "MAP(VARCHAR, INT[])")
    assert duckdb.sql(f"FROM '{path}'").fetchall() == [({"k": [1, 2]},), (None,)]

    if layout == "old":
        with pytest.raises(
            errors.SchemaMismatchError, match=r"column a.value of the file is a list in an old layout"
        ):
            add(sqlite_catalog, path)
        return
    add(sqlite_catalog, path)

    assert seen(sqlite_catalog) == ([[("k", [1, 2])], None], [{"k": [1, 2]}, None])


def test_keys_that_may_be_null_are_refused_by_name_and_for_good(sqlite_catalog, tmp_path):
    path = tmp_path / "map.parquet"
    group = pa.struct([("key", pa.string()), pa.field("value", pa.int32(), nullable=False)])
    rows = of([[{"key": "k", "value": 1}]], pa.list_(pa.field("element", group, nullable=False)))
    of_map = [
        element("a", OPTIONAL, None, 1, MAP),
        element("key_value", REPEATED, None, 2),
        element("key", OPTIONAL, BYTE_ARRAY, converted=0),
        VALUE,
    ]
    path.write_bytes(with_schema(parquet(rows), of_map, ["a.key_value.key", "a.key_value.value"]))
    make(sqlite_catalog, "MAP(VARCHAR, INT)")
    assert duckdb.sql(f"FROM '{path}'").fetchall() == [({"k": 1},)]

    with pytest.raises(
        errors.UnsupportedFeatureError, match=r"map.parquet: the keys of its map a may be NULL"
    ):
        add(sqlite_catalog, path)


def test_maps_without_values_are_refused_in_any_column(sqlite_catalog, tmp_path):
    path = tmp_path / "keys.parquet"
    rows = pa.table({"a": pa.array([1], pa.int32()), "keys": pa.array([[1]], pa.list_(PRIMITIVE))})
    elements = [
        element("a", OPTIONAL, INT32),
        element("keys", OPTIONAL, None, 1, MAP),
        element("key_value", REPEATED, None, 1),
        element("key", REQUIRED, INT32),
    ]
    path.write_bytes(with_schema(parquet(rows), elements, ["a", "keys.key_value.key"]))
    with pytest.raises(duckdb.Error, match="requires two children"):
        duckdb.sql(f"SELECT a FROM '{path}'")
    make(sqlite_catalog, "INT")

    with (
        pytest.raises(errors.UnsupportedFeatureError, match="its map keys does not have keys and values"),
        Lake.connect(sqlite_catalog.sqlalchemy_url) as lake,
        lake.transaction() as tx,
    ):
        tx.add_data_files("t", [str(path)], ignore_extra_columns=True)


def test_types_that_do_not_go_together_are_named_as_damage_for_good(sqlite_catalog, tmp_path):
    """For pyarrow that is an error of input and output, as if a store had failed."""
    path = tmp_path / "days.parquet"
    path.write_bytes(with_schema(parquet({"a": [1]}), [element("a", OPTIONAL, INT64, converted=6)], ["a"]))
    make(sqlite_catalog, "DATE")

    with pytest.raises(
        errors.InvalidInputError, match=r"days.parquet: DATE can only annotate INT32. Replace the file"
    ):
        add(sqlite_catalog, path)


COUNT = 100
VALUES = {
    "BOOLEAN": pa.array([True, False] * (COUNT // 2)),
    "INT32": pa.array(range(COUNT), pa.int32()),
    "INT64": pa.array(range(COUNT), pa.int64()),
    "INT96": pa.array([datetime(2020, 1, 1, second=number % 60) for number in range(COUNT)]),  # noqa: DTZ001
    "FLOAT": pa.array([number / 2 for number in range(COUNT)], pa.float32()),
    "DOUBLE": pa.array([number / 2 for number in range(COUNT)]),
    "BYTE_ARRAY": pa.array([f"text {number}" for number in range(COUNT)]),
    "FIXED_LEN_BYTE_ARRAY": pa.array([Decimal(number) for number in range(COUNT)], pa.decimal128(20, 2)),
}


def written(path, physical: str, **options: object) -> bool:
    """Write a column, and return whether pyarrow can."""
    try:
        data = parquet(
            {"a": VALUES[physical]}, use_deprecated_int96_timestamps=physical == "INT96", **options
        )
    except (OSError, ValueError, pa.ArrowException):  # the last but one: of dictionaries, by this name
        return False
    path.write_bytes(data)
    return True


def read_by_duckdb(path) -> list | str:
    try:
        return [row[0] for row in duckdb.sql(f"FROM '{path}'").fetchall()]
    except duckdb.Error as error:
        return str(error)


def by_us(tmp_path, path, physical: str) -> list | str:
    """Return the column as we read it of a lake to which the file was added, or why it was not."""
    catalog = file_catalog("sqlite", tmp_path / f"lake of {path.stem}")
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        try:
            with lake.transaction() as tx:
                tx.create_table("t", {"a": TYPES[physical]})
                tx.add_data_files("t", [str(path)])
        except errors.DuckLakeError as error:
            return str(error)
        return lake.read_arrow("t")["a"].to_pylist()


TYPES = dict(
    zip(
        VALUES,
        ("boolean", "int32", "int64", "timestamp", "float32", "float64", "varchar", "decimal(20,2)"),
        strict=True,
    )
)


@pytest.mark.parametrize("physical", VALUES)
def test_encodings_are_taken_that_duckdb_reads(tmp_path, physical):
    expected = VALUES[physical].to_pylist()
    read, measured = set(), set()
    for encoding in sorted(set(ENCODINGS.values()) - {"PLAIN_DICTIONARY"}):
        dictionary = encoding == "RLE_DICTIONARY" and physical != "BOOLEAN"
        options = {} if dictionary else {"use_dictionary": False, "column_encoding": {"a": encoding}}
        path = tmp_path / f"{encoding}.parquet"
        if not written(path, physical, **options):
            continue
        measured.add(encoding)
        theirs, ours = read_by_duckdb(path), by_us(tmp_path, path, physical)
        if theirs == expected:
            assert ours == expected
            read.add(encoding)
        else:
            assert f"column a has values of the type {physical} in the encoding {encoding}" in ours

    assert read == READ_ENCODINGS[physical] & measured
    assert READ_ENCODINGS[physical] - measured <= {"PLAIN_DICTIONARY"}  # the old name of the other


def test_codecs_are_taken_that_duckdb_reads(tmp_path):
    expected = VALUES["INT64"].to_pylist()
    taken = set()
    for number, codec in CODECS.items():
        path = tmp_path / f"{codec}.parquet"
        name = "none" if codec in {"UNCOMPRESSED", "LZO", "LZ4"} else codec.lower().replace("lz4_raw", "lz4")
        assert written(path, "INT64", compression=name)
        if codec in {"LZO", "LZ4"}:  # which pyarrow does not write
            path.write_bytes(edited(path.read_bytes(), lambda footer, to=number: in_codec(footer, to)))
        theirs, ours = read_by_duckdb(path), by_us(tmp_path, path, "INT64")
        if isinstance(theirs, str):
            assert f'Unsupported compression codec "{codec}"' in theirs
            assert f"column a is compressed with {codec}, which DuckDB does not read" in ours
            continue
        assert theirs == ours == expected
        taken.add(codec)

    assert taken == READ_CODECS


def in_codec(footer, number: int) -> None:
    for chunk in chunks_of(footer):
        chunk[CODEC].value = number


@pytest.mark.parametrize(
    ("physical", "said"), [("INT64", (4, 3, 0)), ("BOOLEAN", (2, 0, 3))], ids=["levels", "dictionary"]
)
def test_encodings_that_no_page_has_are_taken(sqlite_catalog, tmp_path, physical, said):
    """Old writers name BIT_PACKED where there are no levels, and Impala a dictionary of booleans."""
    path = tmp_path / "old.parquet"

    def change(footer) -> None:
        for chunk in chunks_of(footer):
            chunk[footers.ENCODINGS] = footers.numbers(*said)
            chunk.pop(footers.PAGES, None)

    path.write_bytes(edited(parquet({"a": VALUES[physical]}, use_dictionary=False), change))
    make(sqlite_catalog, "BIGINT" if physical == "INT64" else "BOOLEAN")

    add(sqlite_catalog, path)

    assert seen(sqlite_catalog) == (VALUES[physical].to_pylist(), VALUES[physical].to_pylist())


def test_only_columns_of_the_table_must_be_readable(sqlite_catalog, tmp_path):
    path = tmp_path / "two.parquet"
    rows = {"a": VALUES["INT64"], "b": VALUES["INT64"]}
    encodings = {"use_dictionary": False, "column_encoding": {"a": "PLAIN", "b": "BYTE_STREAM_SPLIT"}}
    path.write_bytes(parquet(rows, **encodings))
    make(sqlite_catalog, "BIGINT")

    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake, lake.transaction() as tx:
        tx.add_data_files("t", [str(path)], ignore_extra_columns=True)

    assert seen(sqlite_catalog) == (list(range(COUNT)), list(range(COUNT)))


@pytest.mark.parametrize("plaintext_footer", [True, False])
def test_files_with_encrypted_columns_are_refused(sqlite_catalog, tmp_path, plaintext_footer):
    path = tmp_path / "secret.parquet"
    config = encryption.EncryptionConfiguration(
        footer_key="footer", column_keys={"column": ["b"]}, plaintext_footer=plaintext_footer
    )
    factory = encryption.CryptoFactory(PlainKeys)
    keys = factory.file_encryption_properties(encryption.KmsConnectionConfig(), config)
    with pq.ParquetWriter(
        path, pa.schema({"a": pa.int32(), "b": pa.string()}), encryption_properties=keys
    ) as writer:
        writer.write_table(pa.table({"a": pa.array([1], pa.int32()), "b": ["x"]}))
    make(sqlite_catalog, "INT")

    with (
        pytest.raises(errors.UnsupportedFeatureError, match=r"secret.parquet is an encrypted Parquet file"),
        Lake.connect(sqlite_catalog.sqlalchemy_url) as lake,
        lake.transaction() as tx,
    ):
        tx.add_data_files("t", [str(path)], ignore_extra_columns=True)


class PlainKeys(encryption.KmsClient):
    """Keys that nobody keeps."""

    def __init__(self, _: object) -> None:
        super().__init__()

    def wrap_key(self, key: bytes, _: str) -> bytes:
        return base64.b64encode(key)

    def unwrap_key(self, wrapped: bytes, _: str) -> bytes:
        return base64.b64decode(wrapped)


def test_int96_has_no_bounds_so_no_row_is_lost(sqlite_catalog, tmp_path):
    """Of Hive, Impala and old Spark: a day that stands for "never" lies beyond what nanoseconds can count."""
    path = tmp_path / "int96.parquet"
    path.write_bytes(parquet({"a": VALUES["INT96"]}, use_deprecated_int96_timestamps=True))
    make(sqlite_catalog, "TIMESTAMP")

    add(sqlite_catalog, path)

    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        (file,) = lake.table_snapshot("t", with_files=True).files
        (stats,) = file.column_stats.values()
        assert (stats.min_value, stats.max_value) == (None, None)
        assert lake.read_arrow("t", filter="a = TIMESTAMP '2020-01-01 00:00:59'").num_rows == 1
    assert by_duckdb(sqlite_catalog, "SELECT count(*) FROM t WHERE a = '2020-01-01 00:00:59'") == [(1,)]
