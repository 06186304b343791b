"""The reference client: DuckDB with the `ducklake` extension, loaded from Python packages.

A client that races with ours on a SQLite catalog must run in a process of its own: DuckDB carries its own
copy of SQLite, and closing a file through one copy drops the file locks of the other in the same process.
"""

import importlib.resources
from contextlib import ExitStack
from typing import Any, Self

import duckdb
import pyarrow as pa

from tests.reference.catalogs import CatalogDatabase

_SCANNERS = {"sqlite": "sqlite_scanner", "postgres": "postgres_scanner", "mysql": "mysql_scanner"}
_CONFIG = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_unsigned_extensions": True,  # they are signed; checking it hashes 40 MB at every LOAD
    "threads": 1,  # so that the order of the files a statement writes repeats
}


class DuckLakeConnection:
    """One in-memory DuckDB with one lake attached as `lake` and in use; `loan` ends when it is closed."""

    def __init__(self, attach_string: str, options: dict[str, object], loan: ExitStack | None = None) -> None:
        self._loan = loan or ExitStack()
        self.raw = duckdb.connect(config=_CONFIG)
        try:
            self._attach(attach_string, options)
        except BaseException:
            self.close()
            raise

    def _attach(self, attach_string: str, options: dict[str, object]) -> None:
        for extension in _extensions(attach_string, options):
            load_extension(self.raw, extension)
        self.sql("SET TimeZone = 'UTC'")
        listed = ", ".join(f"{name.upper()} {_literal(value)}" for name, value in options.items())
        self.sql(f"ATTACH {_literal(attach_string)} AS lake" + (f" ({listed})" if listed else ""))
        self.sql("USE lake")

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        """Run one or more statements and return the rows of the last."""
        return self.raw.execute(text).fetchall()

    def arrow(self, query: str) -> pa.Table:
        """Return a query's rows as an Arrow table."""
        return self.raw.execute(query).to_arrow_table()

    def close(self) -> None:
        self.raw.close()
        self._loan.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def open_lake(
    catalog: CatalogDatabase | str, data_path: str | None = None, **attach_options: object
) -> DuckLakeConnection:
    """Attach a lake, creating it if its catalog is empty.

    Args:
        catalog: a catalog (its data path is the default; `lent` if its lakes are of 1.1), or the text
            ATTACH takes: "ducklake:sqlite:…".
        data_path: where the files go; None with a text leaves it to the catalog's own record.
        attach_options: the extension's options in lower case, as `data_inlining_row_limit=0`.
    """
    loan = ExitStack()
    if isinstance(catalog, CatalogDatabase):
        data_path = data_path or catalog.data_path
        if catalog.is_encrypted:
            attach_options["encrypted"] = True
        from tests.reference.lent import lent  # noqa: PLC0415 - of our library, which a Spark job has in part

        catalog = loan.enter_context(lent(catalog)).attach_string
    options = {"data_path": data_path, **attach_options} if data_path else attach_options
    return DuckLakeConnection(catalog, options, loan)


def opens_1_0() -> bool:
    """Whether the installed DuckDB opens lakes of 1.0; older ones make lakes of 0.3."""
    return tuple(map(int, duckdb.__version__.split(".")[:2])) >= (1, 5)


def load_extension(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    """Load an extension from its package's own file.

    The packages' `import_extension` installs into the user's home first, which workers would do at once.
    """
    folder = importlib.resources.files(f"duckdb_extension_{name}")
    file = folder / "extensions" / f"v{duckdb.__version__}" / f"{name}.duckdb_extension"
    connection.execute(f"LOAD {_literal(str(file))}")


def _extensions(attach_string: str, options: dict[str, object]) -> list[str]:
    """List what this lake needs; `ducklake` last, or it would look for its scanner on the network."""
    scanner = _SCANNERS.get(attach_string.removeprefix("ducklake:").split(":")[0])
    needs_httpfs = (
        "://" in str(options.get("data_path", "")) or "encrypted" in options
    )  # it brings the ciphers
    return [*([scanner] if scanner else []), *(["httpfs"] if needs_httpfs else []), "ducklake"]


def _literal(value: object) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(value)
