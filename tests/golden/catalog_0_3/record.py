"""Record the tables that DuckLake 0.3 creates in a SQLite catalog, as `tables.json` beside this script.

The extension that speaks 0.3 belongs to DuckDB 1.4, which does not go together with the project's DuckDB in
one environment. Run it in one of its own:

    uv run --no-project --with duckdb==1.4.4 --with duckdb-extensions==1.4.4 \
        --with duckdb-extension-ducklake==1.4.4 --with duckdb-extension-sqlite-scanner==1.4.4 \
        python tests/golden/catalog_0_3/record.py
"""

import importlib.resources
import json
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import duckdb

LAYOUT = """
SELECT t.name, c.name, c.type,
    max(c."notnull", c.pk > 0), c.pk
FROM sqlite_master t, pragma_table_info(t.name) c
WHERE t.type = 'table' ORDER BY t.name, c.cid
"""


def load(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    folder = importlib.resources.files(f"duckdb_extension_{name}")
    file = folder / "extensions" / f"v{duckdb.__version__}" / f"{name}.duckdb_extension"
    connection.execute(f"LOAD '{file}'")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        with duckdb.connect(config={"allow_unsigned_extensions": True}) as connection:
            for extension in ("sqlite_scanner", "ducklake"):
                load(connection, extension)
            connection.execute(
                f"ATTACH 'ducklake:sqlite:{folder}/c.sqlite' AS lake (DATA_PATH '{folder}/data/')"
            )
        with closing(sqlite3.connect(f"{folder}/c.sqlite")) as catalog:
            (version,) = catalog.execute(
                "SELECT value FROM ducklake_metadata WHERE key = 'version'"
            ).fetchone()
            rows = catalog.execute(LAYOUT).fetchall()
    tables: dict[str, list[list[object]]] = {}
    for table, *column in rows:
        tables.setdefault(table, []).append(column)
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(columns)}" for name, columns in tables.items())
    head = f'"version": {json.dumps(version)}, "duckdb": {json.dumps(duckdb.__version__)}'
    Path(__file__).with_name("tables.json").write_text(f'{{{head}, "tables": {{\n{lines}\n}}}}\n')


if __name__ == "__main__":
    main()
