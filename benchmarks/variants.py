"""Measure how fast variants that DuckDB shredded are read without Spark, beside DuckDB's own JSON of them.

Medians of some rounds, interleaved; run it on an idle machine. Target: no slower than DuckDB makes JSON of
the same rows, where objects have at most some hundred names.

    python benchmarks/variants.py                    # 200 000 rows, 5 rounds
    python benchmarks/variants.py --rows 50000 --rounds 3
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[1]))

from airflow_provider_ducklake.lake.catalog.lake import Lake
from tests.reference.catalogs import file_catalog
from tests.reference.duckdb_lake import open_lake

if TYPE_CHECKING:
    from collections.abc import Callable

DOCUMENTS = {
    "objects": "{'a': i, 's': 'text ' || i, 'n': {'d': DATE '2020-01-01' + (i % 1000)::INT, 'x': i * 0.5}}",
    "arrays": "{'l': range(i % 20), 'o': [{'k': i, 'v': 'x' || i}, {'k': i * 2, 'v': 'y'}]}",
    "a name in 100": """('{"a": ' || i || ', "k' || (i % 100) || '": 1}')::JSON""",
    "mixed": "CASE i % 3 WHEN 0 THEN i::VARIANT WHEN 1 THEN ('s' || i)::VARIANT ELSE [i]::VARIANT END",
}


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    catalog = file_catalog("sqlite", Path(tempfile.mkdtemp()))
    with open_lake(catalog, data_inlining_row_limit=0) as duck:
        for number, document in enumerate(DOCUMENTS.values()):
            query = f"SELECT i, ({document})::VARIANT AS v FROM range({given.rows}) r(i)"
            duck.sql(f"CREATE TABLE t{number} AS {query}")
        with Lake.connect(catalog.sqlalchemy_url) as lake:
            for number, name in enumerate(DOCUMENTS):
                ours, theirs = [], []
                for _ in range(given.rounds):
                    ours.append(seconds(lambda table=f"t{number}": lake.read_arrow(table)))
                    query = f"SELECT v::JSON FROM t{number}"
                    theirs.append(seconds(lambda query=query: duck.arrow(query)))
                mine, other = statistics.median(ours), statistics.median(theirs)
                print(f"{name:<15} {given.rows / mine:>10,.0f} rows/s, DuckDB {given.rows / other:>10,.0f}")


if __name__ == "__main__":
    main()
