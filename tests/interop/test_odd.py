"""Whatever value a document of a job holds in place of another: the lake stays readable, for DuckDB, too."""

import json
import os
import random
import shutil
import sqlite3
import struct
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import DuckLakeError, UntrustedValueError
from airflow_provider_ducklake.lake.format.snapshots import CommitInfo, CommitKey
from airflow_provider_ducklake.lake.spark.job import io as job_io
from airflow_provider_ducklake.lake.writes.staged import commit_writes, discard, read_staged
from airflow_provider_ducklake.lake.writes.verb import Commit
from tests.interop.given_files import write_given
from tests.interop.jobs import stage
from tests.interop.lakes import alone
from tests.interop.odd import Original, Outcomes, Verb
from tests.interop.vectors import container, vector
from tests.reference.catalogs import CatalogDatabase, file_catalog
from tests.reference.duckdb_lake import open_lake

Place = tuple[str | int, ...]
COUNT = {"ci": 60, "full": 600}
ODD: tuple[Any, ...] = (
    *(None, [], {}, [[]], {"a": 1}, [None], ["x"] * 5, True, False),
    *(0, -1, 1, 2**63, -(2**70), 10**400, 1.5, 1e308, float("nan"), float("inf")),
    *("", "x", "\ud800", "a\x00b", "9" * 5000, "5_0", " 5", "\u0663", "NaN", "2020-01-01"),
    *("varchar", "struct", "decimal(99,1)", "interval"),
)
DOCUMENTS = ("_DONE", "stage.json", "part-00000.json")
ROWS = pa.table({"id": pa.array([1, 2], pa.int64()), "price": pa.array([1.5, None]), "day": ["a", "b"]})


def paths(document: Any, above: Place = ()) -> Iterator[Place]:
    """Yield where each value of a document stands."""
    if above:
        yield above
    items = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in items:
        if isinstance(value, dict | list):
            yield from paths(value, (*above, key))
        else:
            yield (*above, key)


def replaced(document: Any, path: Place, value: Any) -> Any:
    """Return a document with another value in one place; `...` takes it out."""
    found = document
    for key in path[:-1]:
        found = found[key]
    if value is ...:
        del found[path[-1]]
    else:
        found[path[-1]] = value
    return document


@pytest.fixture
def lakes(tmp_path: Path) -> Callable[[], CatalogDatabase]:
    """Return a lake with two tables, the same each time."""
    catalog = file_catalog("sqlite", tmp_path / "area")
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake, lake.transaction() as tx:
        tx.create_table("t", {"id": "int64", "price": "float64", "day": "varchar"})
        tx.create_table("innocent", {"id": "int64"})
        tx.append_arrow("innocent", pa.table({"id": pa.array([7], pa.int64())}))
    shutil.copytree(tmp_path / "area", tmp_path / "first")

    def fresh() -> CatalogDatabase:
        shutil.rmtree(tmp_path / "area")
        shutil.copytree(tmp_path / "first", tmp_path / "area")
        return catalog

    return fresh


def commits(lake: Lake, uri: str) -> bool:
    """Whether a staged write is committed; only an error of ours may come of it."""
    try:
        staged = read_staged(lake, [uri])
        keyed = lake.writes.keyed_commit(CommitKey((uri,)))
        return commit_writes(lake, staged, Commit(CommitInfo("me", "odd"), keyed)) is not None
    except DuckLakeError:
        return False


def try_one(catalog: CatalogDatabase, draw: random.Random) -> bool:
    """Stage a write, change a value in one of its documents, commit it; return whether the catalog lies."""
    creates = draw.random() < 0.4
    table = "made" if creates else "t"
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        staged = stage(lake, f"main.{table}", ROWS, creates=creates)
        uri, file = job_io.stage_uri(staged.directory), Path(staged.directory) / draw.choice(DOCUMENTS)
        document = json.loads(file.read_text())
        path, value = draw.choice(list(paths(document))), draw.choice([*ODD, ...])
        file.write_text(json.dumps(replaced(document, path, value)))
        what = f"{file.name} {path} = {value!r:.40}"
        if not commits(lake, uri):
            with suppress(DuckLakeError):
                discard(lake, [uri])
            table = "t"
        lies = lake.verify()  # of what its writer might have written into the file itself
        ours = None if lies else lake.read_arrow(table).num_rows
    with open_lake(catalog) as reference:
        assert reference.sql("SELECT id FROM innocent") == [(7,)], what
        assert ours is None or len(reference.sql(f"SELECT * FROM {table}")) == ours, what
    return bool(lies)


def test_no_odd_value_in_a_document_makes_a_lake_unreadable(lakes, seed, size):
    draw = random.Random(f"odd documents {seed}")
    lies = sum(try_one(lakes(), draw) for _ in range(COUNT[size]))
    assert lies < COUNT[size] / 10


@pytest.mark.parametrize("bound", [3, 4])
def test_a_bound_that_is_no_value_of_its_type_is_refused(lakes, bound):
    with Lake.connect(lakes().sqlalchemy_url) as lake:
        staged = stage(lake, "main.t", ROWS)
        file = Path(staged.directory) / DOCUMENTS[-1]
        document = json.loads(file.read_text())
        path = ("data_files", 0, "column_stats", 0, bound)
        file.write_text(json.dumps(replaced(document, path, "2O")))

        with pytest.raises(UntrustedValueError, match="'2O', which is not a valid int64"):
            read_staged(lake, [job_io.stage_uri(staged.directory)])


# Whatever a catalog has in place of a field's value, and rows twice or lost: an answer or a typed error.
#
# SQLite keeps any value in any column, and every client may write what it likes into the others.


DAMAGES = {"ci": 40, "full": 1500}
VERBS_A_DAMAGE = 6
SHARE_OF_ROWS = 0.2
ODD_VALUES: tuple[Any, ...] = (
    *(None, "", "x", 0, -1, 1, 7, 2**31, 2**63 - 1, -(2**63), 1.5, 1e308),
    *(b"\x00\xff", "a\x00b", "9" * 5000, "\u0663", "NaN", "inf", "true", "2020-01-01", "{}", "[1", "5_0"),
    *("varchar", "struct", "decimal(99,1)", "interval", "bucket(0)", "../../x", "s3://elsewhere/x", "'; --"),
)
HISTORY = (
    "CALL lake.set_option('data_inlining_row_limit', 0)",
    "CREATE TABLE t (id BIGINT, price DOUBLE, day DATE, tags VARCHAR[], s STRUCT(a INTEGER, b VARCHAR))",
    "INSERT INTO t SELECT x, x / 2, DATE '2026-01-01' + x::INT, [], {'a': x, 'b': 'y'} FROM range(40) r(x)",
    "DELETE FROM t WHERE id < 5",
    "INSERT INTO t SELECT x, x / 2, DATE '2026-02-01', ['b'], NULL FROM range(40, 60) r(x)",
    "CREATE TABLE p (k VARCHAR, n INTEGER)",
    "ALTER TABLE p SET PARTITIONED BY (k, bucket(4, n))",
    "ALTER TABLE p SET SORTED BY (n ASC NULLS FIRST)",
    "INSERT INTO p SELECT 'k' || x % 3, x FROM range(30) r(x)",
    "CREATE TABLE i (id INTEGER, text VARCHAR, made TIMESTAMP)",
    "CALL lake.set_option('data_inlining_row_limit', 100, table_name => 'i')",
    "INSERT INTO i SELECT x, 'x' || x, TIMESTAMP '2026-01-01 10:00:00' FROM range(8) r(x)",
    "DELETE FROM i WHERE id = 2",
    "CREATE VIEW v (a, b) AS SELECT id, price FROM t",
    "CREATE MACRO plus(a, b := 2) AS a + b",
    "COMMENT ON TABLE t IS 'a comment'",
    "COMMENT ON COLUMN t.id IS 'its key'",
    "ALTER TABLE t ADD COLUMN more INTEGER DEFAULT 7",
    "CREATE TABLE given (i BIGINT, st STRUCT(a INTEGER, b VARCHAR))",
    "CALL ducklake_add_data_files('lake', 'given', '{given}', ignore_extra_columns => true)",
    "CREATE SCHEMA other",
    "CREATE TABLE other.gone (n INTEGER)",
    "INSERT INTO other.gone FROM range(3)",
    "DROP TABLE other.gone",
)
ONE = pa.table(
    {"id": pa.array([900], pa.int32()), "text": ["new"], "made": pa.array([None], pa.timestamp("us"))}
)


def in_transaction(change: Callable[[Any], object]) -> Verb:
    """Return what makes a transaction of one change."""

    def run(lake: Lake) -> None:
        with lake.transaction() as tx:
            change(tx)

    return run


VERBS: dict[str, Verb] = {
    "current": lambda lake: lake.current_snapshot(),
    "snapshots": lambda lake: lake.snapshots(),
    "at a time": lambda lake: lake.snapshot_at(datetime.now(UTC)),
    "tables": lambda lake: lake.tables(),
    "view": lambda lake: lake.reads.view("v"),
    "options": lambda lake: lake.reads.options("i"),
    "table": lambda lake: lake.table_snapshot("t", with_files=True),
    "new table": lambda lake: lake.read_arrow("p", at=lake.current_snapshot().id - 1),
    "read t": lambda lake: lake.read_arrow("t"),
    "read t, filtered": lambda lake: lake.read_arrow("t", filter="id > 30 AND day < DATE '2026-03-01'"),
    "read p": lambda lake: lake.read_arrow("p", filter="k = 'k1'"),
    "read i": lambda lake: lake.read_arrow("i"),
    "read given": lambda lake: lake.read_arrow("given", filter="i > 1"),
    "info": lambda lake: lake.table_info(),
    "files": lambda lake: lake.files("t"),
    "count": lambda lake: lake.row_count("t"),
    "bounds": lambda lake: lake.column_bounds("t", "id"),
    "feed of t": lambda lake: lake.changes("t", 2, lake.current_snapshot().id).read_arrow(),
    "feed of i": lambda lake: lake.insertions("i", 2, lake.current_snapshot().id),
    "watch": lambda lake: lake.table_changes("t", 1, ("insert", "delete")),
    "clients": lambda lake: lake.clients(),
    "health": lambda lake: lake.table_health(),
    "verify": lambda lake: lake.verify(),
    "option": lambda lake: lake.set_option("target_file_size", "10MB"),
    "append": lambda lake: lake.append_arrow("i", ONE),
    "delete from t": in_transaction(lambda tx: tx.delete_rows("t", "id < 12")),
    "delete from i": in_transaction(lambda tx: tx.delete_rows("i", "id < 5")),
    "add column": in_transaction(lambda tx: tx.add_column("t", "extra", "varchar", "x")),
    "drop": in_transaction(lambda tx: tx.drop_table("p")),
    "merge": lambda lake: lake.maintenance.plan_merge("t"),
    "rewrite": lambda lake: lake.maintenance.plan_rewrite("t"),
    "flush": lambda lake: lake.flush_inlined_data("i"),
    "restore": lambda lake: lake.restore("t", at=3),
    "expire": lambda lake: lake.expire_snapshots(keep_last=2),
    "clean up": lambda lake: lake.cleanup_old_files(older_than=timedelta(0)),
    "orphans": lambda lake: lake.delete_orphaned_files(),
    "repair": lambda lake: lake.repair(lake.verify(), dry_run=True),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Original:
    """A lake that DuckDB made."""
    catalog = file_catalog("sqlite", tmp_path_factory.mktemp("odd") / "area")
    original = Original(catalog)
    write_given(original.area / "given")
    with open_lake(catalog) as reference:
        for statement in HISTORY:
            reference.sql(statement.replace("{given}", str(original.area / "given" / "plain.parquet")))
    original.keep()
    return original


def database_of(catalog: CatalogDatabase) -> str:
    return catalog.sqlalchemy_url.removeprefix("sqlite:///")


def columns_of(catalog: CatalogDatabase) -> list[tuple[str, str, int]]:
    """Return table, column and number of rows of all that hold rows."""
    with closing(sqlite3.connect(database_of(catalog))) as connection:
        names = connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
        ).fetchall()
        found = []
        for (table,) in names:
            (rows,) = connection.execute(f'SELECT count(*) FROM "{table}"').fetchone()
            if rows:
                layout = connection.execute(f'PRAGMA table_info("{table}")').fetchall()
                found += [(table, column[1], rows) for column in layout]
        return found


def spoil(catalog: CatalogDatabase, statement: str, *values: object) -> None:
    """Change a catalog behind everybody's back."""
    with closing(sqlite3.connect(database_of(catalog))) as connection, connection:
        connection.execute(statement, values)


def place(table: str, row: int) -> str:
    """Return the query for a row by its number."""
    return f'SELECT rowid FROM "{table}" ORDER BY rowid LIMIT 1 OFFSET {row}'


def put(catalog: CatalogDatabase, table: str, column: str, row: int, value: object) -> str:
    """Put a value into a field, and say so."""
    change = f'UPDATE OR IGNORE "{table}" SET "{column}" = ? WHERE rowid = ({place(table, row)})'
    spoil(catalog, change, value)
    return f"{table}.{column} of row {row} = {value!r:.40}"


def double(catalog: CatalogDatabase, table: str, row: int) -> str:
    """Have a row twice where no key forbids it, and say so."""
    spoil(
        catalog,
        f'INSERT OR IGNORE INTO "{table}" SELECT * FROM "{table}" WHERE rowid = ({place(table, row)})',
    )
    return f"{table}, row {row} twice"


def lose(catalog: CatalogDatabase, table: str, row: int) -> str:
    """Take a row away, and say so."""
    spoil(catalog, f'DELETE FROM "{table}" WHERE rowid = ({place(table, row)})')
    return f"{table} without row {row}"


def plant(catalog: CatalogDatabase, draw: random.Random) -> str:
    """Put an odd value into one drawn field, have a drawn row twice or not at all, and say what."""
    table, column, rows = draw.choice(columns_of(catalog))
    row = draw.randrange(rows)
    if (kind := draw.random()) < SHARE_OF_ROWS:
        return (double if kind < SHARE_OF_ROWS / 2 else lose)(catalog, table, row)
    return put(catalog, table, column, row, draw.choice(ODD_VALUES))


def test_an_odd_value_in_a_catalog_is_an_answer_or_a_typed_error(made, seed, size):
    draw = random.Random(f"odd catalogs {seed}")
    outcomes = Outcomes()
    for _ in range(DAMAGES[size]):
        made.restore()
        what = plant(made.catalog, draw)
        for name in draw.sample(sorted(VERBS), VERBS_A_DAMAGE):
            outcomes.note(made.catalog, what, name, VERBS[name])
    outcomes.check()


def test_each_field_without_its_value_and_each_row_twice_or_lost(made, seed, size):
    made.restore()
    fields = columns_of(made.catalog)
    damages: list[Callable[[CatalogDatabase], str]] = [
        partial(put, table=table, column=column, row=row, value=None)
        for table, column, rows in fields
        for row in {0, rows - 1}
    ]
    damages += [
        partial(change, table=table, row=row)
        for table, rows in sorted({(table, rows) for table, _, rows in fields})
        for row in {0, rows - 1}
        for change in (double, lose)
    ]
    draw = random.Random(f"damages {seed}")
    outcomes = Outcomes()
    for damage in damages if size == "full" else draw.sample(damages, DAMAGES[size]):
        for name in VERBS if size == "full" else draw.sample(sorted(VERBS), VERBS_A_DAMAGE):
            made.restore()
            outcomes.note(made.catalog, damage(made.catalog), name, VERBS[name])
    outcomes.check()


# Whatever a data file or a delete file says in place of what was written: rows or a typed error.
#
# Nobody can tell a changed value of a row from a true one; but no damaged file may end a task without
# its name.


FILES = {"ci": 25, "full": 2000}
VERBS_A_FILE = 4
FOOTER = 2_000  # bytes
FILE_ROWS = pa.table(
    {
        "id": pa.array(range(200), pa.int64()),
        "text": [f"text {number % 7}" for number in range(200)],
        "tags": [[number] for number in range(200)],
    }
)
ODD_NUMBERS = (None, 0, -1, 1, 2**31, 2**62, -(2**63))
ODD_JSON: tuple[Any, ...] = (*ODD_NUMBERS, 1.5, "", "x", [], {}, [[]], True, "9" * 5000, "\u0663", "puffin")
Damage = Callable[[bytes, random.Random], bytes]


def flipped(content: bytes, draw: random.Random) -> bytes:
    changed = bytearray(content)
    first = max(0, len(content) - FOOTER) if draw.random() < 0.7 else 0
    for _ in range(draw.randint(1, 4)):
        changed[draw.randrange(first, len(content))] = draw.randrange(256)
    return bytes(changed)


def cut(content: bytes, draw: random.Random) -> bytes:
    return content[: draw.randrange(len(content))]


def cut_in_the_middle(content: bytes, draw: random.Random) -> bytes:
    start = draw.randrange(len(content))
    return content[:start] + content[start + draw.randint(1, 64) :]


def other_footer_length(content: bytes, draw: random.Random) -> bytes:
    length = draw.choice((0, 1, len(content), 2**31 - 1, 2**32 - 1))
    return content[:-8] + struct.pack("<I", length) + content[-4:]


def parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return sink.getvalue().to_pybytes()


def other_rows(_: bytes, draw: random.Random) -> bytes:
    """Return a sound Parquet file of other columns, with the ids of fields that the table has."""
    types = (pa.int64(), pa.int32(), pa.string(), pa.binary(), pa.null(), pa.list_(pa.int8()), pa.float64())
    types = (*types, pa.timestamp("ns", "UTC"), pa.bool_(), pa.struct({"a": pa.int8()}))
    names = draw.choice((["id", "text", "tags"], ["file_path", "pos"], ["id", "id"], [""], []))
    fields = [
        pa.field(name, draw.choice(types), metadata={"PARQUET:field_id": str(draw.choice((1, 2, 3, -1, 77)))})
        for name in names
    ]
    rows = draw.choice((0, 1, 200))
    return parquet(pa.table([pa.nulls(rows, one.type) for one in fields], schema=pa.schema(fields)))


def other_deletes(_: bytes, draw: random.Random) -> bytes:
    """Return a delete file of positions that no file has."""
    positions = [draw.choice(ODD_NUMBERS) for _ in range(draw.randint(1, 3))]
    columns = {"file_path": ["x"] * len(positions), "pos": pa.array(positions, pa.int64())}
    if draw.random() < 0.5:
        columns["_ducklake_internal_snapshot_id"] = pa.array(positions[::-1], pa.int64())
    return parquet(pa.table(columns))


def other_vectors(_: bytes, draw: random.Random) -> bytes:
    """Return a Puffin file with one odd value in its footer, or odd positions."""
    if draw.random() < 0.3:
        return container((draw.choice((None, "x", "-1", "9" * 30)), vector(draw.choice((3, 2**40, 2**62)))))
    whole = container(("4", vector(1, 2)), ("5", vector(3)))
    (length,) = struct.unpack("<I", whole[-12:-8])
    document = json.loads(whole[-12 - length : -12])
    place = draw.choice(list(paths(document)))
    text = json.dumps(replaced(document, place, draw.choice([*ODD_JSON, ...]))).encode()
    return whole[: -12 - length] + text + struct.pack("<II", len(text), 0) + b"PFA1"


ANY: tuple[Damage, ...] = (flipped, flipped, cut, cut_in_the_middle, other_footer_length, other_rows)
FILE_DAMAGES = {
    "data": (*ANY, other_deletes),
    "parquet deletes": (*ANY, other_deletes),
    "vectors": (*ANY, other_vectors, other_vectors),
}
FILE_VERBS: dict[str, Verb] = {
    "read": lambda lake: lake.read_arrow("t"),
    "read, filtered": lambda lake: lake.read_arrow("t", filter="id > 150 AND text = 'text 3'"),
    "read earlier": lambda lake: lake.read_arrow("t", at=lake.current_snapshot().id - 2),
    "feed": lambda lake: lake.changes("t", 2, lake.current_snapshot().id).read_arrow(),
    "count": lambda lake: lake.row_count("t"),
    "bounds": lambda lake: lake.column_bounds("t", "id"),
    "verify": lambda lake: lake.verify(),
    "repair": lambda lake: lake.repair(lake.verify(), dry_run=True),
    "delete": in_transaction(lambda tx: tx.delete_rows("t", "id >= 100 AND id < 110")),
    "merge": lambda lake: lake.maintenance.plan_merge("t"),
    "rewrite": lambda lake: lake.maintenance.plan_rewrite("t"),
    "restore": lambda lake: lake.restore("t", at=3),
    "expire": lambda lake: lake.expire_snapshots(keep_last=1),
    "migrate": lambda lake: lake.migrate(dry_run=True),
}


@pytest.fixture(scope="module", params=["parquet deletes", "vectors"])
def files_made(request, tmp_path_factory) -> tuple[str, Original]:
    """A lake with a data file and a delete file of two snapshots."""
    kind = request.param
    catalog = file_catalog("sqlite", tmp_path_factory.mktemp("odd") / "area")
    version = "1.1" if kind == "vectors" else "1.0"
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path, version=version) as lake:
        lake.set_option("data_inlining_row_limit", 0)
        lake.set_option("write_deletion_vectors", value=kind == "vectors")
        alone(lake).create_table("t", {"id": "int64", "text": "varchar", "tags": "int64[]"})
        lake.append_arrow("t", FILE_ROWS)
        for condition in ("id < 10", "id >= 190"):
            alone(lake).delete_rows("t", condition)
    original = Original(catalog)
    original.keep()
    return kind, original


def files_of(catalog: CatalogDatabase, kind: str) -> dict[str, Path]:
    """Return the file of rows, and the one of deletes by its kind."""
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        (file,) = lake.files("t")
    assert file.delete_file is not None
    return {"data": Path(file.data_file), kind: Path(file.delete_file)}


def test_a_damaged_file_is_an_answer_or_a_typed_error(files_made, seed, size):
    kind, original = files_made
    draw = random.Random(f"odd files {kind} {seed}")
    outcomes = Outcomes()
    for _ in range(FILES[size]):
        original.restore()
        role, file = draw.choice(list(files_of(original.catalog, kind).items()))
        damage = draw.choice(FILE_DAMAGES[role])
        file.write_bytes(damage(file.read_bytes(), draw))
        for name in draw.sample(sorted(FILE_VERBS), VERBS_A_FILE):
            outcomes.note(original.catalog, f"{role} {damage.__name__}", name, FILE_VERBS[name])
    outcomes.check()


@pytest.mark.parametrize(
    "make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")], ids=["fifo", "device"]
)
def test_no_verb_waits_for_what_is_no_file(files_made, make):
    kind, original = files_made
    original.restore()
    outcomes = Outcomes()
    for file in files_of(original.catalog, kind).values():
        file.unlink()
        make(file)
    for name, verb in FILE_VERBS.items():
        outcomes.note(original.catalog, "no file", name, verb)
    outcomes.check()
    assert outcomes.seen["StorageError"]


def test_no_damaged_file_can_be_added(files_made, seed, size):
    _, original = files_made
    original.restore()
    draw = random.Random(f"odd files to add {seed}")
    outcomes = Outcomes()
    file = original.area / "given.parquet"
    for _ in range(FILES[size]):
        damage = draw.choice(FILE_DAMAGES["data"])
        file.write_bytes(damage(parquet(FILE_ROWS), draw))
        add = in_transaction(lambda tx: tx.add_data_files("t", [str(file)]))
        outcomes.note(original.catalog, damage.__name__, "add", add)
    outcomes.check()
