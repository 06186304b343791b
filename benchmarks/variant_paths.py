"""Compare a filter on a path in variants with the same on a column of its own: files left out, and time.

Ten files, each with other values at the path; the variants are read for the filter only. Medians of some
rounds, in turn. DuckDB has the same filters.

    python benchmarks/variant_paths.py                    # 10 files of 50 000 rows, 5 rounds
    python benchmarks/variant_paths.py --rows 10000 --rounds 3
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import pyarrow as pa

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.spec.types.variants import encode_variant
from benchmarks.variants import seconds
from tests.reference.catalogs import file_catalog
from tests.reference.duckdb_lake import open_lake

FILES = 10
FILTERS = {"one file": "{} = {middle}", "all files": "{} >= 0"}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    catalog = file_catalog("sqlite", Path(tempfile.mkdtemp()))
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        write(lake, given.rows)
    with Lake.connect(catalog.sqlalchemy_url) as lake, open_lake(catalog) as duck:
        for name, text in FILTERS.items():
            compare(lake, duck, name, text.replace("{middle}", str(given.rows * FILES // 2)), given.rounds)


def write(lake: Lake, rows: int) -> None:
    with lake.transaction() as tx:
        tx.create_table("t", {"id": "int64", "doc": "variant"})
    taken = []
    for start in range(0, rows * FILES, rows):
        documents = [_document(n) for n in range(start, start + rows)]
        one = pa.table({"id": pa.array(range(start, start + rows), pa.int64()), "doc": documents})
        taken.append(seconds(partial(lake.append_arrow, "t", one)))
    print(f"written: {rows / statistics.median(taken):,.0f} rows/s")


def _document(n: int) -> dict[str, bytes]:
    parts = encode_variant({"user": {"id": n, "name": f"name {n}"}, "kind": f"k{n % 7}", "tags": ["a", "b"]})
    return dict(zip(("metadata", "value"), parts, strict=True))


def compare(lake: Lake, duck: object, name: str, text: str, rounds: int) -> None:
    taken: dict[str, list[float]] = {}
    for _ in range(rounds + 1):
        for target in ("id", "doc.user.id"):
            where = text.replace("{}", target)
            run = partial(lake.read_arrow, "t", columns=["id"], filter=where)
            taken.setdefault(target, []).append(seconds(run))
            query = f"SELECT id FROM t WHERE {where}"
            taken.setdefault(f"DuckDB {target}", []).append(seconds(partial(duck.arrow, query)))  # type: ignore[attr-defined]
    medians = {which: statistics.median(found[1:]) for which, found in taken.items()}
    files = len(lake.scan("t", filter=text.replace("{}", "doc.user.id")).files)
    ratio = medians["doc.user.id"] / medians["id"]
    shown = ", ".join(f"{which} {one * 1000:.0f} ms" for which, one in medians.items())
    print(f"{name:<10} {files} of {FILES} files are read: x{ratio:.1f} of the column's time ({shown})")


if __name__ == "__main__":
    main()
