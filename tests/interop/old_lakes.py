"""Lakes of older spec versions: those that older DuckDBs wrote, and versions made of them.

No client that writes 0.1 or 0.4 can be had. 0.1 is the lake of 0.2 with the tables and the places of files
that 0.1 had; 0.4 differs from 1.0 by its version alone.
"""

import atexit
import json
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pyarrow.parquet as pq
import sqlalchemy as sa

from airflow_provider_ducklake.lake.catalog.database.connect import open_engine, parse_url
from airflow_provider_ducklake.lake.catalog.database.tables import catalog_tables
from airflow_provider_ducklake.lake.format.versions import SpecVersion
from tests.golden.old_lakes.record import HISTORY, rows_at_every_snapshot
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake

GOLDEN = Path(__file__).parents[1] / "golden" / "old_lakes"
RECORDED = ["v0_2", "v0_3"]
OLD_VERSIONS = ["0.1", "0.2", "0.3", "0.4"]
UTC = "tzinfo=zoneinfo.ZoneInfo(key='UTC')"
Rows = dict[str, dict[str, list[str]]]  # of each snapshot and table: texts, sorted


@dataclass(frozen=True)
class OldLake:
    """A lake of an older version in a SQLite catalog, with the rows that its DuckDB read at each snapshot."""

    catalog: CatalogDatabase
    version: str
    rows: Rows

    def execute(self, statement: str, *values: object) -> None:
        with closing(sqlite3.connect(self.catalog.location)) as connection, connection:
            connection.execute(statement, values)


def old_lake(version: str, folder: Path) -> OldLake:
    """Make a lake of that version in a folder that does not exist yet."""
    match version:
        case "0.1":
            return _as_0_1(recorded("v0_2", folder))
        case "0.4":
            return _as_0_4(folder)
        case _:
            return recorded(f"v{version.replace('.', '_')}", folder)


def recorded(name: str, folder: Path) -> OldLake:
    """Copy a recorded lake."""
    return _copied(GOLDEN / name, folder)


def _copied(source: Path, folder: Path) -> OldLake:
    shutil.copytree(source, folder)
    document = json.loads((folder / "expected.json").read_text())
    catalog = CatalogDatabase("sqlite", str(folder / "catalog.sqlite"), f"{folder}/data/")
    lake = OldLake(catalog, document["version"], document["rows"])
    lake.execute("UPDATE ducklake_metadata SET value = ? WHERE key = 'data_path'", catalog.data_path)
    return lake


def _as_0_1(lake: OldLake) -> OldLake:
    data = Path(lake.catalog.data_path)
    for path in data.rglob("*.parquet"):
        path.rename(data / path.name)
    for kind in ("data_file", "delete_file"):
        with closing(sqlite3.connect(lake.catalog.location)) as connection:
            rows = connection.execute(f"SELECT rowid, path FROM ducklake_{kind}").fetchall()
        for place, path in rows:
            lake.execute(f"UPDATE ducklake_{kind} SET path = ? WHERE rowid = ?", Path(path).name, place)
    for statement in _TO_0_1:
        lake.execute(statement)
    forget_snapshots(lake)
    return replace(lake, version="0.1")


def forget_snapshots(lake: OldLake) -> None:
    """Take the column out of merged files that repeats what the catalog says of them."""
    with closing(sqlite3.connect(lake.catalog.location)) as connection:
        query = "SELECT path FROM ducklake_data_file WHERE partial_file_info <> ''"
        paths = [path for (path,) in connection.execute(query)]
    for path in paths:
        (place,) = Path(lake.catalog.data_path).rglob(path)
        rows = pq.read_table(place).drop_columns(["_ducklake_internal_snapshot_id"])
        pq.write_table(rows, place, store_schema=False)
        lake.execute(
            "UPDATE ducklake_data_file SET file_size_bytes = ?, footer_size = ? WHERE path = ?",
            place.stat().st_size,
            int.from_bytes(place.read_bytes()[-8:-4], "little"),
            path,
        )


_TO_0_1 = [
    "UPDATE ducklake_metadata SET value = '0.1' WHERE key = 'version'",
    *(
        f"ALTER TABLE ducklake_{table} DROP COLUMN {column}"
        for table, columns in {
            "metadata": ("scope", "scope_id"),
            "schema": ("path", "path_is_relative"),
            "table": ("path", "path_is_relative"),
            "data_file": ("mapping_id",),
        }.items()
        for column in columns
    ),
    "DROP TABLE ducklake_column_mapping",
    "DROP TABLE ducklake_name_mapping",
    "UPDATE ducklake_files_scheduled_for_deletion SET path = replace(path, 'main/m/', '')",
    "UPDATE ducklake_partition_column SET column_id = column_id - 1",  # of `p`, which has no nested columns
]


def _as_0_4(folder: Path) -> OldLake:
    return _copied(_written_today(), folder)


@cache
def _written_today() -> Path:
    """Let the reference write what the older ones wrote; in files, which they made of everything."""
    folder = Path(tempfile.mkdtemp(prefix="ducklake_0_4_"))
    atexit.register(shutil.rmtree, folder)
    catalog = CatalogDatabase("sqlite", str(folder / "catalog.sqlite"), f"{folder}/data/")
    (folder / "data").mkdir()
    with open_lake(catalog, data_inlining_row_limit=0) as reference:
        for statement in HISTORY:
            reference.sql(statement)
        document = {"version": "0.4", "rows": rows_at_every_snapshot(reference.raw)}
    (folder / "expected.json").write_text(json.dumps(document))
    OldLake(catalog, "1.0", {}).execute("UPDATE ducklake_metadata SET value = '0.4' WHERE key = 'version'")
    return folder


def read_alike(rows: list[str]) -> list[str]:
    """Return rows that an older DuckDB read as texts of today's."""
    return [row.replace("tzinfo=<UTC>", UTC) for row in rows]


# --- in other databases ---


def copy_lake(lake: OldLake, target: CatalogDatabase) -> OldLake:
    """Put the catalog of a lake into another, empty database; the files stay where they are."""
    catalog = CatalogDatabase(target.kind, target.location, lake.catalog.data_path)
    tables = catalog_tables(SpecVersion(lake.version)).metadata
    with writing(lake.catalog) as source, writing(catalog) as connection:
        tables.create_all(connection)
        for table in tables.sorted_tables:
            if rows := [row._asdict() for row in source.execute(table.select())]:
                connection.execute(table.insert(), rows)
    return replace(lake, catalog=catalog)


@contextmanager
def writing(catalog: CatalogDatabase) -> Iterator[sa.Connection]:
    """Yield a connection to a catalog; leaving it commits and closes all."""
    engine = open_engine(parse_url(catalog.sqlalchemy_url))
    with engine.begin() as connection:
        yield connection
    engine.dispose()
