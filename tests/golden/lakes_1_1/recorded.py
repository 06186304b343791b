"""The recorded lakes of 1.1, each a SQLite catalog with its files and what each snapshot holds."""

import json
import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.golden.lakes_1_1.histories import HISTORIES
from tests.reference.catalogs import CatalogDatabase

HERE = Path(__file__).parent
NAMES = tuple(HISTORIES)


@dataclass(frozen=True)
class RecordedLake:
    """A copy of a recorded lake; what it holds, as ducklakepy read it when it was recorded.

    `snapshots` has for each snapshot's id `schemas`, `views`, and `tables`, which has for each table the
    types of its `columns` and its `rows` by `rows_of`; names are paths in double quotes. `changes` has the
    feed of each table that the newest snapshot has: of each change the snapshot, the row id and the kind.
    """

    catalog: CatalogDatabase
    snapshots: dict[str, dict[str, Any]]
    changes: dict[str, list[list[Any]]]


def recorded_lake(name: str, folder: Path) -> RecordedLake:
    """Copy a recorded lake into a folder that does not exist yet."""
    shutil.copytree(HERE / name, folder)
    catalog = CatalogDatabase("sqlite", str(folder / "catalog.sqlite"), f"{folder}/data/")
    with closing(sqlite3.connect(catalog.location)) as connection, connection:
        moved = "UPDATE ducklake_metadata SET value = ? WHERE key = 'data_path'"
        connection.execute(moved, [catalog.data_path])
    expected = json.loads((folder / "expected.json").read_text())
    return RecordedLake(catalog, expected["snapshots"], expected["changes"])


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """Return an Arrow table's rows as JSON has them, sorted.

    Instants, decimals and NaN are strings, bytes are in hex, and a VARIANT is an object of its two buffers.
    """
    columns = {name: _values(column) for name, column in zip(table.column_names, table.columns, strict=True)}
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return sorted(json.loads(json.dumps(rows, default=_text), parse_constant=str), key=json.dumps)


def _values(column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_temporal(column.type):
        return column.cast(pa.string()).to_pylist()  # with all its digits
    return column.to_pylist()


def _text(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
