"""Record a lake as an older DuckDB writes it, with the rows that it reads at every snapshot.

Makes the folder named after the spec version beside this script: `catalog.sqlite`, `data/`, `expected.json`.
The extensions of older DuckDBs do not go together with the project's in one environment:

    for v in 1.3.2 1.4.4; do
        uv run --no-project --with duckdb==$v --with duckdb-extension-ducklake==$v \
            --with duckdb-extension-sqlite-scanner==$v python tests/golden/old_lakes/record.py
    done
"""

import importlib.resources
import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import duckdb

HERE = Path(__file__).parent
HISTORY = [
    "CREATE TABLE t (i INTEGER, s VARCHAR, l INTEGER[], st STRUCT(a INTEGER, b VARCHAR), d DATE)",
    "INSERT INTO t SELECT x, 's' || x, [x, NULL], {'a': x, 'b': NULL}, DATE '2024-01-01' + x::INT FROM range(20) r(x)",  # noqa: E501 - SQL
    "DELETE FROM t WHERE i % 5 = 0",
    "DELETE FROM t WHERE i % 5 = 1",
    "UPDATE t SET s = 'updated' WHERE i IN (2, 3)",
    "ALTER TABLE t ADD COLUMN late BIGINT DEFAULT 7",
    "INSERT INTO t SELECT x, NULL, [], NULL, NULL, x FROM range(100, 103) r(x)",
    "ALTER TABLE t RENAME COLUMN s TO renamed",
    "ALTER TABLE t ALTER i SET DATA TYPE BIGINT",
    "INSERT INTO t VALUES (5000000000, 'big', [1], {'a': 1, 'b': 'x'}, DATE '1960-02-29', NULL)",
    "ALTER TABLE t DROP COLUMN d",
    "CREATE TABLE p (k VARCHAR, n INTEGER)",
    "ALTER TABLE p SET PARTITIONED BY (k)",
    "INSERT INTO p SELECT 'k' || x % 2, x FROM range(10) r(x)",
    "CREATE TABLE m (n INTEGER)",
    *(f"INSERT INTO m FROM range({10 * n}, {10 * n + 3})" for n in range(4)),
    "CALL ducklake_merge_adjacent_files('lake')",
    "DELETE FROM m WHERE n = 10",
    "INSERT INTO m VALUES (99)",
    "CREATE SCHEMA other",
    "CREATE TABLE other.t AS SELECT 1.5::DECIMAL(5, 2) AS v, TIMESTAMPTZ '2024-01-01 00:00:00+00' AS z",
    "CREATE VIEW shown AS FROM t",
    "DROP TABLE other.t",
]


def load(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    folder = importlib.resources.files(f"duckdb_extension_{name}")
    file = folder / "extensions" / f"v{duckdb.__version__}" / f"{name}.duckdb_extension"
    connection.execute(f"LOAD '{file}'")


def main() -> None:
    folder = Path("/tmp/old-lake")  # delete files name their data files by full paths; nobody reads these
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    with duckdb.connect(config={"allow_unsigned_extensions": True, "threads": 1}) as connection:
        for extension in ("sqlite_scanner", "ducklake"):
            load(connection, extension)
        connection.execute("SET TimeZone = 'UTC'")
        attach = f"ATTACH 'ducklake:sqlite:{folder}/catalog.sqlite' AS lake (DATA_PATH '{folder}/data/')"
        connection.execute(attach)
        connection.execute("USE lake")
        for statement in HISTORY:
            connection.execute(statement)
        expected = rows_at_every_snapshot(connection)
    with closing(sqlite3.connect(folder / "catalog.sqlite")) as catalog:
        ((version,),) = catalog.execute("SELECT value FROM ducklake_metadata WHERE key = 'version'")
        catalog.execute("UPDATE ducklake_metadata SET value = 'DATA_PATH' WHERE key = 'data_path'")
        catalog.commit()
    document = {"version": version, "duckdb": duckdb.__version__, "rows": expected}
    (folder / "expected.json").write_text(json.dumps(document, indent=1) + "\n")
    target = HERE / f"v{version.replace('.', '_')}"
    shutil.rmtree(target, ignore_errors=True)
    shutil.move(folder, target)


def rows_at_every_snapshot(connection: duckdb.DuckDBPyConnection) -> dict[str, dict[str, list[str]]]:
    """Return for each snapshot and table the texts of its rows, sorted."""
    found: dict[str, dict[str, list[str]]] = {}
    ids = connection.execute("SELECT snapshot_id FROM ducklake_snapshots('lake') ORDER BY 1").fetchall()
    for (snapshot_id,) in ids:
        tables = {}
        for name in ("t", "p", "m", "other.t"):
            try:
                rows = connection.execute(f"FROM {name} AT (VERSION => {snapshot_id})").fetchall()
            except duckdb.Error:
                continue  # not there then
            tables[name] = sorted(str(row) for row in rows)
        found[str(snapshot_id)] = tables
    return found


if __name__ == "__main__":
    main()
