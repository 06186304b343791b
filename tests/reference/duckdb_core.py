"""DuckDB 2.0's core, in a process of the other environment: it judges Parquet files and their statistics."""

from tests.reference.next.process import OracleProcess, Remote, shared_process


class DuckDBCore(Remote):
    """An in-memory DuckDB 2.0; `tests/reference/next/core.py` lists its methods."""


def open_core(process: OracleProcess | None = None) -> DuckDBCore:
    return DuckDBCore(process or shared_process(), "core")
