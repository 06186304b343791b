"""Our texts of values are DuckDB's, for random values of every type."""

import math
import random
import struct

import duckdb
import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.format.types.ducklake_types import DuckLakeType, parse_type
from airflow_provider_ducklake.lake.format.types.values import Physical, identity_text, order_key
from airflow_provider_ducklake.lake.storage.arrow.arrow_types import from_physical

DAY = 86_400
YEARS = 9000 * 365 * DAY
# type → random physical value; times within Arrow's and DuckDB's common range
DRAW = {
    "boolean": lambda r: r.random() < 0.5,
    "int8": lambda r: r.randint(-128, 127),
    "int64": lambda r: r.randint(-(2**63), 2**63 - 1),
    "uint64": lambda r: r.randint(0, 2**64 - 1),
    "float32": lambda r: struct.unpack("<f", r.randbytes(4))[0],
    "float64": lambda r: struct.unpack("<d", r.randbytes(8))[0],
    "decimal(4,4)": lambda r: r.randint(-9999, 9999),
    "decimal(18,3)": lambda r: r.randint(-(10**18) + 1, 10**18 - 1),
    "decimal(38,38)": lambda r: r.randint(-(10**38) + 1, 10**38 - 1),
    "decimal(38,0)": lambda r: r.randint(-(10**38) + 1, 10**38 - 1),
    "date": lambda r: r.randint(-2_000_000, 10_000_000),
    "time": lambda r: r.randint(0, DAY * 10**6 - 1),
    "timestamp": lambda r: r.randint(-YEARS, YEARS) * 10**6 + r.choice([0, 1, 500_000, 999_999]),
    "timestamp_s": lambda r: r.randint(-YEARS, YEARS) * 10**6,
    "timestamp_ms": lambda r: r.randint(-YEARS, YEARS) * 10**3 + r.choice([0, 1, 500, 999]),
    "timestamp_ns": lambda r: r.randint(-(2**63) + 2 * DAY * 10**9, 2**63 - 2),
    "timestamptz": lambda r: r.randint(-YEARS, YEARS) * 10**6 + r.choice([0, 1, 500_000, 999_999]),
    "blob": lambda r: r.randbytes(r.randint(0, 12)),
    "uuid": lambda r: r.randbytes(16),
}
_ROUND = {
    "float32": [
        1.0,
        10.0,
        1e7,
        1e8,
        123456789.0,
        1e15,
        1e16,
        1e17,
        1e-4,
        1e-5,
        16777216.0,
        34061768.0,
        3.4028234663852886e38,
    ],
    "float64": [
        1.0,
        1e15,
        1e16,
        123456789012345680.0,
        1e-4,
        1e-5,
        9007199254740993.0,
        5e-324,
        1.7976931348623157e308,
    ],
}


def as_float32(value: float) -> float:
    return struct.unpack("<f", struct.pack("<f", value))[0]


_ROUND["float32"] = [as_float32(value) for value in _ROUND["float32"]]


def texts_of_duckdb(type_: DuckLakeType, values: list[Physical]) -> list[str]:
    column = from_physical(type_, values)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("rows", pa.table({"c": column}))
        return [text for (text,) in connection.execute("SELECT c::VARCHAR FROM rows").fetchall()]


def random_values(name: str, seed: int, size: str) -> list[Physical]:
    draw = random.Random(seed)
    values = [*_ROUND.get(name, []), *(DRAW[name](draw) for _ in range(3_000 if size == "ci" else 100_000))]
    return [
        value for value in values if not (isinstance(value, float) and math.isnan(value))
    ]  # no bound is NaN


@pytest.mark.parametrize("name", [name for name in DRAW if name != "float32"])
def test_random_values_have_duckdbs_text(name, seed, size):
    type_, values = parse_type(name), random_values(name, seed, size)

    assert [identity_text(type_, value) for value in values] == texts_of_duckdb(type_, values)


def test_random_float32_texts_mean_the_same_float_as_duckdbs(seed, size):
    """DuckDB writes all nine digits where it cannot decide between two shorter texts (1 value in 100)."""
    type_, values = parse_type("float32"), random_values("float32", seed, size)

    ours = [identity_text(type_, value) for value in values]
    theirs = texts_of_duckdb(type_, values)

    assert [order_key(type_, text) for text in ours] == values
    assert [order_key(type_, text) for text in theirs] == values
    differing = [pair for pair in zip(ours, theirs, strict=True) if pair[0] != pair[1]]
    assert len(differing) < len(values) / 25
    assert all(len(our) <= len(their) for our, their in differing)


@pytest.mark.parametrize("name", ["int32", "decimal(9,2)"])
@pytest.mark.parametrize("text", ["NaN", "sNaN", "Infinity", "-inf"])
def test_texts_that_are_numbers_to_python_alone_order_nothing(name, text):
    with pytest.raises(ValueError, match="is not a number"):
        order_key(parse_type(name), text)
