"""DuckDB 2.0 without extensions: its SQL, its reader and writer of Parquet and their statistics."""

from typing import Any

import duckdb
import pyarrow as pa


class Core:
    """One in-memory DuckDB."""

    def __init__(self) -> None:
        self.raw = duckdb.connect(config={"threads": 1, "autoinstall_known_extensions": False})
        self.raw.execute("SET TimeZone = 'UTC'")

    def version(self) -> str:
        return duckdb.__version__

    def sql(self, text: str, parameters: list[object] | None = None) -> list[tuple[Any, ...]]:
        """Run one or more statements and return the rows of the last."""
        return self.raw.execute(text, parameters).fetchall()

    def parse_error(self, text: str) -> str | None:
        """Run a statement, and return the parser's error; None if it could be parsed, whatever came of it."""
        try:
            self.raw.execute(text)
        except duckdb.ParserException as error:
            return str(error)
        except duckdb.Error:
            return None
        return None

    def arrow(self, query: str) -> pa.Table:
        """Return a query's rows as an Arrow table; a VARIANT is its two buffers."""
        return self.raw.sql(query).to_arrow_table()

    def register(self, name: str, rows: pa.Table) -> None:
        """Let SQL read an Arrow table by that name."""
        self.raw.register(name, rows)

    def write_parquet(self, query: str, path: str, options: str = "") -> dict[str, Any]:
        """Write a query's rows and return what the writer says of the file: counts, sizes, statistics."""
        quoted = path.replace("'", "''")
        self.raw.execute(f"COPY ({query}) TO '{quoted}' (FORMAT parquet, RETURN_STATS{options})")
        names = [column[0] for column in self.raw.description]
        (row,) = self.raw.fetchall()
        return dict(zip(names, row, strict=True))

    def close(self) -> None:
        self.raw.close()
