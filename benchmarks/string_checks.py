"""Time what it costs to look at all strings before they are written, beside the write itself.

    python benchmarks/string_checks.py                    # 2 million rows of three strings, 7 rounds
    python benchmarks/string_checks.py --rows 200000 --rounds 2

Medians are printed; the first round is left out.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from airflow_provider_ducklake.lake.format.schema import Column, TableSchema  # noqa: E402
from airflow_provider_ducklake.lake.format.snapshots import ColumnId  # noqa: E402
from airflow_provider_ducklake.lake.format.types.ducklake_types import ScalarType  # noqa: E402
from airflow_provider_ducklake.lake.storage.arrow.string_checks import refuse_bad_strings  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

_NAMES = ("word", "sentence", "note")


def schema_of(type_name: str) -> TableSchema:
    """Return the schema of a table of three columns."""
    return TableSchema(
        tuple(Column(ColumnId(place), name, ScalarType(type_name)) for place, name in enumerate(_NAMES, 1))
    )


def rows_of(count: int) -> pa.Table:
    """Return strings of about 10, 40 and 100 bytes, a few of which are not ASCII."""
    widths = (10, 40, 100)
    texts = [[f"{row * 7919 % 999_983:06d}é".ljust(width, "x") for row in range(count)] for width in widths]
    return pa.table(dict(zip(_NAMES, texts, strict=True)))


def medians(rounds: int, *tried: Callable[[], None]) -> list[float]:
    """Return the seconds that each takes, run in turn."""
    seconds: list[list[float]] = [[] for _ in tried]
    for _ in range(rounds + 1):  # the first warms up
        for one, of_one in zip(tried, seconds, strict=True):
            started = time.monotonic()
            one()
            of_one.append(time.monotonic() - started)
    return [statistics.median(of_one[1:]) for of_one in seconds]


def arrow(rows: pa.Table, folder: str, rounds: int) -> None:
    """Arrow's writer beside the check, which comes before it."""
    encode, look = medians(
        rounds,
        lambda: pq.write_table(rows, f"{folder}/rows.parquet", compression="zstd"),
        lambda: refuse_bad_strings(rows, schema_of("varchar"), "t"),
    )
    print(f"Arrow's writer: {encode:.2f} s, the check {look:.3f} s more: {1 + look / encode:.2f} x")


def json(count: int, rounds: int) -> None:
    """Values of a ``json`` column."""
    texts = [f'{{"id": {row}, "tags": ["a", "b"], "price": 1.5}}' for row in range(count)]
    rows = pa.table(dict.fromkeys(_NAMES, texts))
    (look,) = medians(rounds, lambda: refuse_bad_strings(rows, schema_of("json"), "t"))
    print(f"JSON: {look / count / len(_NAMES) * 1e6:.2f} µs a value of {len(texts[-1])} bytes")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        made = rows_of(given.rows)
        arrow(made, directory, given.rounds)
        json(given.rows // 10, given.rounds)
