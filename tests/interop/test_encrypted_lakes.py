"""Encrypted lakes: what the reference wrote and we read, what we wrote and it reads, and what lies."""

import sqlite3
import sys
import threading
import traceback
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlalchemy import create_engine

from airflow_provider_ducklake.lake import errors
from airflow_provider_ducklake.lake.catalog.database.connect import parse_url
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.storage.parquet.modules import (
    Items,
    ModuleKind,
    ThriftField,
    read_struct,
    write_struct,
)
from tests.interop.lakes import alone
from tests.reference import ducklakepy_lake
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake

ROWS = 5_000
SELECT = "SELECT * FROM t ORDER BY id"


def rows(start: int = 0, count: int = ROWS) -> pa.Table:
    """Return rows with a dictionary column, a list, a struct, NULLs and long texts."""
    ids = range(start, start + count)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "word": pa.array([None if i % 11 == 0 else f"word {i % 7}" for i in ids], pa.string()),
            "text": pa.array([f"{i:06}" * 9 for i in ids], pa.string()),
            "list": pa.array([[i, None] * (i % 3) for i in ids], pa.list_(pa.int64())),
            "pair": pa.array([{"a": i * 1.5, "b": i % 2 == 0} for i in ids]),
        }
    )


COLUMNS = {
    "id": "int64",
    "word": "varchar",
    "text": "varchar",
    "list": "int64[]",
    "pair": "struct(a float64, b boolean)",
}


def keys(catalog: CatalogDatabase) -> list[str]:
    """Return the keys of all files that the catalog has."""
    engine = create_engine(parse_url(catalog.sqlalchemy_url))
    query = "SELECT encryption_key FROM ducklake_{}_file ORDER BY {}_file_id"
    with engine.connect() as connection:
        found = [
            key
            for name in ("data", "delete")
            for key in connection.exec_driver_sql(query.format(name, name)).scalars()
        ]
    engine.dispose()
    return found


def by_reference(catalog: CatalogDatabase, query: str = SELECT) -> pa.Table:
    with open_lake(catalog, encrypted=True) as duckdb:
        return duckdb.arrow(query)


def by_us(catalog: CatalogDatabase, **choice: object) -> pa.Table:
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        return lake.read_arrow("t", **choice).sort_by("id")


def check_equal(catalog: CatalogDatabase) -> None:
    ours, theirs = by_us(catalog), by_reference(catalog)
    assert ours.to_pylist() == theirs.to_pylist()
    assert ours.num_rows


@contextmanager
def contents_seen(places: Callable[[], Iterable[Path]]) -> Iterator[set[bytes]]:
    """Collect what files at some places contain meanwhile."""
    found: set[bytes] = set()
    is_over = threading.Event()

    def look() -> None:
        while not is_over.wait(0.02):
            for place in places():
                try:
                    found.add(place.read_bytes())
                except OSError:
                    continue

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield found
    finally:
        is_over.set()
        watcher.join()


def check_sealed(catalog: CatalogDatabase) -> None:
    """Every Parquet file is encrypted, and nothing of the rows is in one."""
    files = [*Path(catalog.data_path).rglob("*.parquet")]
    assert files
    for file in files:
        content = file.read_bytes()
        assert content[:4] == content[-4:] == b"PARE"
        assert b"word" not in content
        assert b"schema" not in content


def test_what_the_reference_wrote_is_read_at_every_snapshot(catalog):
    with open_lake(catalog, encrypted=True, data_inlining_row_limit=0) as duckdb:
        duckdb.sql("CREATE TABLE t AS SELECT i AS id, 'w' || (i % 7) AS word FROM range(5000) r(i)")
        duckdb.sql("DELETE FROM t WHERE id % 5 = 3")
        duckdb.sql("UPDATE t SET word = 'x' WHERE id % 10 = 1")
        duckdb.sql("ALTER TABLE t ADD COLUMN n INTEGER DEFAULT 7")
        duckdb.sql("DELETE FROM t WHERE id % 50 = 1")
        versions = [row[0] for row in duckdb.sql("SELECT snapshot_id FROM ducklake_snapshots('lake')")][2:]
        found = {
            at: duckdb.arrow(f"SELECT * FROM t AT (VERSION => {at}) ORDER BY id").to_pylist()
            for at in versions
        }
    check_equal(catalog)
    for at, theirs in found.items():
        assert by_us(catalog, at=at).to_pylist() == theirs


@pytest.fixture
def lying(sqlite_catalog) -> CatalogDatabase:
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path, encrypted=True) as lake:
        lake.set_option("data_inlining_row_limit", 0)
        alone(lake).create_table("t", COLUMNS)
        lake.append_arrow("t", rows())
    return sqlite_catalog


@pytest.mark.every_catalog
@pytest.mark.parametrize("key_bytes", [16, 24, 32])
def test_what_we_write_the_reference_reads_and_changes(catalog, key_bytes):
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path, encrypted=True, key_bytes=key_bytes) as lake:
        lake.set_option("data_inlining_row_limit", 0)
        alone(lake).create_table("t", COLUMNS)
        lake.append_arrow("t", rows())
        alone(lake).delete_rows("t", "id BETWEEN 1000 AND 1100 OR id = 4")
        lake.append_arrow("t", rows(ROWS))
    check_sealed(catalog)
    check_equal(catalog)
    assert {len(key) for key in keys(catalog)} == {{16: 24, 24: 32, 32: 44}[key_bytes]}
    assert len(set(keys(catalog))) == 3

    found = by_reference(catalog, "SELECT id FROM t WHERE word = 'word 3' ORDER BY text LIMIT 3")
    assert found.to_pylist() == [{"id": 3}, {"id": 10}, {"id": 17}]
    if catalog.kind == "mariadb":
        return  # the reference cannot change files there
    with open_lake(catalog, encrypted=True) as duckdb:
        duckdb.sql("DELETE FROM t WHERE id % 9 = 5")
        duckdb.sql("UPDATE t SET word = 'changed' WHERE id % 100 = 1")
        duckdb.sql("CALL ducklake_merge_adjacent_files('lake')")
        duckdb.sql("CALL ducklake_rewrite_data_files('lake', delete_threshold => 0)")
    check_equal(catalog)


def test_files_of_many_pages_with_dictionaries_are_read_both_ways(lying, size):
    count = {"ci": 20_000, "full": 200_000}[size]
    with open_lake(lying, encrypted=True) as duckdb:
        select = "SELECT i, 'w ' || (i % 999), repeat(i::VARCHAR, 9), [i], {'a': i, 'b': i % 2 = 0}"
        duckdb.sql(f"INSERT INTO t {select} FROM range({ROWS}, {count}) r(i)")
    with Lake.connect(lying.sqlalchemy_url) as lake:
        lake.append_arrow("t", rows(count, count))

    ours, theirs = by_us(lying), by_reference(lying)

    assert ours.num_rows == 2 * count
    assert ours.equals(theirs.cast(ours.schema))
    where = "word = 'w 7' OR id < 1000"
    with Lake.connect(lying.sqlalchemy_url) as lake:
        few = lake.read_arrow("t", columns=["id"], filter=where)["id"].to_pylist()
    with open_lake(lying, encrypted=True) as duckdb:
        assert sorted(few) == sorted(id_ for (id_,) in duckdb.sql(f"SELECT id FROM t WHERE {where}"))
        found = duckdb.sql("SELECT id FROM t ORDER BY text DESC, id LIMIT 3")
        duckdb.sql(f"DELETE FROM t WHERE {where}")
        duckdb.sql("CALL ducklake_merge_adjacent_files('lake')")
        duckdb.sql("CALL ducklake_rewrite_data_files('lake', delete_threshold => 0)")
    assert found == [
        (one["id"],) for one in ours.sort_by([("text", "descending"), ("id", "ascending")])[:3].to_pylist()
    ]
    after = by_us(lying)
    assert 0 < after.num_rows < 2 * count
    assert after.equals(by_reference(lying).cast(after.schema))


def test_new_keys_are_as_long_as_those_of_the_lake(sqlite_catalog):
    with open_lake(sqlite_catalog, encrypted=True, data_inlining_row_limit=0) as duckdb:
        duckdb.sql("CREATE TABLE t AS SELECT 1::BIGINT AS id")
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        lake.set_option("data_inlining_row_limit", 0)
        lake.append_arrow("t", pa.table({"id": pa.array([2], pa.int64())}))
    with Lake.connect(sqlite_catalog.sqlalchemy_url, key_bytes=32) as lake:
        lake.append_arrow("t", pa.table({"id": pa.array([3], pa.int64())}))
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        lake.append_arrow("t", pa.table({"id": pa.array([4], pa.int64())}))

    assert [len(key) for key in keys(sqlite_catalog)] == [24, 24, 44, 44]
    check_equal(sqlite_catalog)
    with pytest.raises(errors.InvalidInputError, match="key_bytes: 17 is not a length of AES keys"):
        Lake.connect(sqlite_catalog.sqlalchemy_url, key_bytes=17)


def test_what_leaves_the_catalog_or_comes_back_is_encrypted(catalog):
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path, encrypted=True) as lake:
        alone(lake).create_table("t", COLUMNS)
        lake.append_arrow("t", rows(0, 5))
        lake.flush_inlined_data()
        check_sealed(catalog)
        lake.set_option("data_inlining_row_limit", 0)
        lake.append_arrow("t", rows(5, 200))
        then = lake.current_snapshot().id
        alone(lake).delete_rows("t", "id BETWEEN 50 AND 60")
        before = lake.read_arrow("t", at=then).sort_by("id").to_pylist()

        lake.restore("t", at=then)

        assert by_us(catalog).to_pylist() == before
        check_equal(catalog)
        check_sealed(catalog)
        assert None not in keys(catalog)
        assert lake.verify() == []
        feed = lake.changes("t", then + 1, lake.current_snapshot().id).read_arrow()
    with open_lake(catalog, encrypted=True) as duckdb:
        theirs = duckdb.sql(f"FROM ducklake_table_changes('lake', 'main', 't', {then + 1}, {then + 2})")
    assert feed.num_rows == len(theirs)


def test_without_the_package_nothing_is_written_and_the_error_says_what_to_install(lying, monkeypatch):
    before = sorted(Path(lying.data_path).rglob("*"))
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)

    with Lake.connect(lying.sqlalchemy_url) as lake:
        for act in (lambda: lake.append_arrow("t", rows(0, 1)), lambda: lake.read_arrow("t")):
            with pytest.raises(errors.StorageError, match="pip install cryptography"):
                act()

    assert sorted(Path(lying.data_path).rglob("*")) == before


def test_files_of_others_cannot_be_added(lying, tmp_path):
    pq.write_table(rows(0, 1), tmp_path / "plain.parquet")
    refused = pytest.raises(errors.UnsupportedFeatureError, match=r"main\.t: the lake is encrypted")
    with Lake.connect(lying.sqlalchemy_url) as lake, lake.transaction() as tx, refused:
        tx.add_data_files("t", [str(tmp_path / "plain.parquet")])


def test_a_key_shows_in_nothing_that_is_printed(lying):
    (key,) = keys(lying)
    with Lake.connect(lying.sqlalchemy_url) as lake:
        (file,) = lake.files("t")
        assert file.data_file_encryption_key is not None
        assert file.data_file_encryption_key.text == key
        assert key not in f"{file} {lake.scan('t')!r} {lake.table_snapshot('t', with_files=True)!r}"


def test_what_ducklakepy_wrote_at_1_1_is_read_and_changed(sqlite_catalog):
    with ducklakepy_lake.open_lake(sqlite_catalog, encrypted=True) as other:
        other.create_table("t", {"id": "int64", "word": "varchar"})
        other.set_option("data_inlining_row_limit", 0)
        other.insert("t", [{"id": i, "word": f"word {i % 3}"} for i in range(500)])
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake, lake.transaction() as tx:
        tx.delete_rows("t", "id < 100")
        tx.append_arrow("t", pa.table({"id": pa.array([1000], pa.int64()), "word": ["new"]}))

    assert {len(key) for key in keys(sqlite_catalog)} == {44}
    ours = by_us(sqlite_catalog).to_pylist()
    with ducklakepy_lake.open_lake(sqlite_catalog) as other:
        theirs = other.read("t").sort_by("id").to_pylist()
    assert ours == theirs
    assert len(ours) == 401


# --- files and keys that lie ---


@pytest.mark.parametrize("spoilt", ["CAST(encryption_key AS BLOB)", "encryption_key || CAST(x'ff' AS TEXT)"])
def test_a_key_that_sqlite_keeps_as_bytes_shows_in_no_error(lying, spoilt):
    (key,) = keys(lying)
    with sqlite3.connect(lying.location) as connection:
        connection.execute(f"UPDATE ducklake_data_file SET encryption_key = {spoilt}")

    with pytest.raises(errors.CatalogError) as raised, Lake.connect(lying.sqlalchemy_url) as lake:
        lake.read_arrow("t")

    shown = "".join(traceback.format_exception(raised.value))
    assert key[:8] not in shown
    assert "encryption_key" in shown


def set_key(catalog: CatalogDatabase, key: str | None) -> None:
    with sqlite3.connect(catalog.location) as connection:
        connection.execute("UPDATE ducklake_data_file SET encryption_key = ?", [key])


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        (None, "the catalog of this encrypted lake has no key for it"),
        ("", "the catalog of this encrypted lake has no key for it"),
        ("AAAA", "the key in the catalog has 3 bytes; AES takes 16, 24 or 32"),
        ("not base64!", "the key in the catalog is not base64"),
        ("A" * 22 + "==", "it was changed, or the catalog has another key for it"),
        ("A" * 43 + "=", "it was changed, or the catalog has another key for it"),
    ],
)
def test_a_key_that_does_not_fit_is_an_error_that_names_the_file_and_no_key(lying, key, problem):
    set_key(lying, key)

    with pytest.raises(errors.StorageError, match=problem) as raised:
        by_us(lying)

    assert ".parquet" in str(raised.value)
    assert not key or key not in str(raised.value)


def damaged(catalog: CatalogDatabase, change: str) -> None:
    (file,) = Path(catalog.data_path).rglob("*.parquet")
    content = bytearray(file.read_bytes())
    match change:
        case "cut":
            content = content[: len(content) // 2] + content[-8:]
        case "page":
            content[200] ^= 1
        case "length":
            content[4:8] = (1 << 30).to_bytes(4, "little")
        case "footer":
            content[-40] ^= 1
        case "footer length":
            content[-8:-4] = (len(content) * 2).to_bytes(4, "little")
        case "magic":
            content[-4:] = b"PAR1"
        case "crypto":
            start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
            content[start] ^= 0xFF
    file.write_bytes(content)


@pytest.mark.parametrize("change", ["cut", "page", "length", "footer", "footer length", "magic", "crypto"])
def test_a_file_that_was_changed_is_refused_by_both(lying, change):
    damaged(lying, change)

    with pytest.raises(Exception):  # noqa: B017, PT011 - whatever the reference raises
        by_reference(lying)
    with pytest.raises((errors.StorageError, errors.UnsupportedFeatureError), match=r"\.parquet"):
        by_us(lying)


def forge(catalog: CatalogDatabase, crypto: bytes, *, keeps_footer: bool = True) -> None:
    """Put other FileCryptoMetaData into the file, which nothing authenticates."""
    (file,) = Path(catalog.data_path).rglob("*.parquet")
    content = file.read_bytes()
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    _, end = read_struct(content, start)
    footer = crypto + (content[end:-8] if keeps_footer else b"")
    file.write_bytes(content[:start] + footer + len(footer).to_bytes(4, "little") + content[-4:])


def of_kind(kind: ModuleKind, value: object, *path: int) -> bytes:
    """Return a struct with a value at a path of fields."""
    field = ThriftField(kind, value)
    for number in reversed(path[1:]):
        field = ThriftField(ModuleKind.STRUCT, {number: field})
    return write_struct({path[0]: field})


@pytest.mark.parametrize("path", [(1,), (1, 1), (1, 1, 1), (1, 1, 2), (1, 1, 3)])
@pytest.mark.parametrize(
    ("kind", "value"), [(ModuleKind.I32, 5), (ModuleKind.LIST, Items(ModuleKind.I32, [1]))]
)
def test_encryption_that_is_said_by_another_type_is_damage(lying, path, kind, value):
    forge(lying, of_kind(kind, value, *path))

    with pytest.raises(
        errors.StorageError, match=r"\.parquet is damaged: a field about its encryption has another"
    ):
        by_us(lying)


def test_a_forged_file_takes_little_memory(lying):
    zeros = 2**21
    forge(lying, of_kind(ModuleKind.LIST, Items(ModuleKind.BINARY, [b""] * zeros), 1), keeps_footer=False)

    tracemalloc.start()
    try:
        with pytest.raises(errors.StorageError, match=r"\.parquet is damaged: "):
            by_us(lying)
        assert tracemalloc.get_traced_memory()[1] < 2**25
    finally:
        tracemalloc.stop()
