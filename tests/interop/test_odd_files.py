"""Whatever a data file or a delete file says in place of what was written: rows or a typed error.

Nobody can tell a changed value of a row from a true one; but no damaged file may end a task without its name.
"""

import json
import os
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from tests.interop.lakes import alone
from tests.interop.odd import Original, Outcomes, Verb
from tests.interop.test_odd_documents import paths, replaced
from tests.interop.vectors import container, vector
from tests.reference.catalogs import CatalogDatabase, file_catalog

FILES = {"ci": 25, "full": 2000}
VERBS_A_FILE = 4
FOOTER = 2_000  # bytes
ROWS = pa.table(
    {
        "id": pa.array(range(200), pa.int64()),
        "text": [f"text {number % 7}" for number in range(200)],
        "tags": [[number] for number in range(200)],
    }
)
ODD_NUMBERS = (None, 0, -1, 1, 2**31, 2**62, -(2**63))
ODD_JSON: tuple[Any, ...] = (*ODD_NUMBERS, 1.5, "", "x", [], {}, [[]], True, "9" * 5000, "\u0663", "puffin")
Damage = Callable[[bytes, random.Random], bytes]


def in_transaction(change: Callable[[Any], object]) -> Verb:
    """Return what makes a transaction of one change."""

    def run(lake: Lake) -> None:
        with lake.transaction() as tx:
            change(tx)

    return run


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
DAMAGES = {
    "data": (*ANY, other_deletes),
    "parquet deletes": (*ANY, other_deletes),
    "vectors": (*ANY, other_vectors, other_vectors),
}
VERBS: dict[str, Verb] = {
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
def made(request, tmp_path_factory) -> tuple[str, Original]:
    """A lake with a data file and a delete file of two snapshots."""
    kind = request.param
    catalog = file_catalog("sqlite", tmp_path_factory.mktemp("odd") / "area")
    version = "1.1" if kind == "vectors" else "1.0"
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path, version=version) as lake:
        lake.set_option("data_inlining_row_limit", 0)
        lake.set_option("write_deletion_vectors", value=kind == "vectors")
        alone(lake).create_table("t", {"id": "int64", "text": "varchar", "tags": "int64[]"})
        lake.append_arrow("t", ROWS)
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


def test_a_damaged_file_is_an_answer_or_a_typed_error(made, seed, size):
    kind, original = made
    draw = random.Random(f"odd files {kind} {seed}")
    outcomes = Outcomes()
    for _ in range(FILES[size]):
        original.restore()
        role, file = draw.choice(list(files_of(original.catalog, kind).items()))
        damage = draw.choice(DAMAGES[role])
        file.write_bytes(damage(file.read_bytes(), draw))
        for name in draw.sample(sorted(VERBS), VERBS_A_FILE):
            outcomes.note(original.catalog, f"{role} {damage.__name__}", name, VERBS[name])
    outcomes.check()


@pytest.mark.parametrize(
    "make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")], ids=["fifo", "device"]
)
def test_no_verb_waits_for_what_is_no_file(made, make):
    kind, original = made
    original.restore()
    outcomes = Outcomes()
    for file in files_of(original.catalog, kind).values():
        file.unlink()
        make(file)
    for name, verb in VERBS.items():
        outcomes.note(original.catalog, "no file", name, verb)
    outcomes.check()
    assert outcomes.seen["StorageError"]


def test_no_damaged_file_can_be_added(made, seed, size):
    _, original = made
    original.restore()
    draw = random.Random(f"odd files to add {seed}")
    outcomes = Outcomes()
    file = original.area / "given.parquet"
    for _ in range(FILES[size]):
        damage = draw.choice(DAMAGES["data"])
        file.write_bytes(damage(parquet(ROWS), draw))
        add = in_transaction(lambda tx: tx.add_data_files("t", [str(file)]))
        outcomes.note(original.catalog, damage.__name__, "add", add)
    outcomes.check()
