"""Be a writer of another project, in an environment made from peers.txt; benchmarks/commit.py starts it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from append_loop import run

if TYPE_CHECKING:
    from collections.abc import Callable


def pyducklake(attach: str) -> Callable[[], Any]:
    """Return the append of pyducklake, a wrapper of DuckDB with its extension."""
    import pyarrow as pa
    from pyducklake import Catalog

    lake = Catalog("lake", attach.removeprefix("ducklake:"))
    table = lake.load_table("t")
    rows = pa.table({"i": pa.array([1], pa.int64()), "s": ["x"]})
    return lambda: table.append(rows)


def ducklake_dataframe(attach: str) -> Callable[[], Any]:
    """Return the append of ducklake-dataframe, which writes catalogs itself."""
    import pandas as pd
    from ducklake_pandas import write_ducklake

    path = attach.removeprefix("ducklake:").removeprefix("sqlite:").removeprefix("postgres:")
    rows = pd.DataFrame({"i": [1], "s": ["x"]})
    return lambda: write_ducklake(rows, path, "t", mode="append")


def install() -> None:
    """Install DuckDB's extensions from their packages into this user's home."""
    from duckdb_extensions import import_extension

    for name in ("sqlite_scanner", "postgres_scanner", "ducklake"):
        import_extension(name)


if __name__ == "__main__":
    if sys.argv[1:] == ["install"]:
        install()
    else:
        who, target, seconds = sys.argv[1:]
        run({"pyducklake": pyducklake, "ducklake-dataframe": ducklake_dataframe}[who](target), float(seconds))
