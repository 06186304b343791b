"""Record the lakes of `histories.py` as ducklakepy writes them, with what it reads at every snapshot.

    scripts/run python -m tests.golden.lakes_1_1.record

Makes a folder for each beside this script: `catalog.sqlite`, `data/`, `expected.json`.
"""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.golden.lakes_1_1.histories import AT_1_0, HISTORIES
from tests.golden.lakes_1_1.recorded import HERE, rows_of
from tests.reference import duckdb_lake
from tests.reference.catalogs import file_catalog
from tests.reference.ducklakepy_lake import DuckLakePyLake, open_lake


def main() -> None:
    for name in HISTORIES:
        record(name)


def record(name: str) -> None:
    folder = Path("/tmp/lake-1-1")  # delete files name their data files by full paths
    shutil.rmtree(folder, ignore_errors=True)
    catalog = file_catalog("sqlite", folder)
    if name == "migrated":
        with duckdb_lake.open_lake(catalog) as reference:
            for statement in AT_1_0:
                reference.sql(statement)
    with open_lake(catalog, migrate=True) as lake:
        HISTORIES[name](lake)
        expected = {
            "version": lake.version(),
            "snapshots": {str(snapshot): _content(lake, snapshot) for snapshot in lake.snapshots()},
            "changes": {_text(table): _feed(lake, table) for table in lake.tables()},
        }
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
    with closing(sqlite3.connect(catalog.location)) as connection, connection:
        connection.execute("UPDATE ducklake_metadata SET value = 'DATA_PATH' WHERE key = 'data_path'")
    shutil.rmtree(HERE / name, ignore_errors=True)
    shutil.move(folder, HERE / name)


def _content(lake: DuckLakePyLake, snapshot: int) -> dict[str, Any]:
    return {
        "schemas": [_text(schema) for schema in lake.schemas(snapshot)],
        "views": {_text(view): lake.view(view, snapshot) for view in lake.views(snapshot)},
        "tables": {
            _text(table): {
                "columns": lake.columns(table, snapshot),
                "rows": rows_of(lake.read_row_ids(table, snapshot)),
            }
            for table in lake.tables(snapshot)
        },
    }


def _feed(lake: DuckLakePyLake, table: tuple[str, ...]) -> list[list[Any]]:
    changes = lake.changes(table, 0, lake.head()).select(["snapshot_id", "rowid", "change_type"])
    return sorted(list(row.values()) for row in changes.to_pylist())


def _text(names: tuple[str, ...]) -> str:
    return ".".join('"' + name.replace('"', '""') + '"' for name in names)


if __name__ == "__main__":
    main()
