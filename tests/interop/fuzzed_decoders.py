"""Feed mutated bytes to each decoder under a limit of memory; with a seed and a number of rounds for each.

Prints a line for each input that ended in another error than the decoder's own, or asked for the memory.
"""

import random
import resource
import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_ducklake.lake.errors import DuckLakeError
from airflow_provider_ducklake.lake.format.sql.parse import parse_expression
from airflow_provider_ducklake.lake.format.sql.tokens import ExpressionError
from airflow_provider_ducklake.lake.format.types import texts as times
from airflow_provider_ducklake.lake.format.types.ducklake_types import parse_type
from airflow_provider_ducklake.lake.format.types.geometry import (
    GeometryStats,
    check_wkb,
    is_finite,
    wkb_of_wkt,
)
from airflow_provider_ducklake.lake.format.types.literals import parse_cast, parse_literal
from airflow_provider_ducklake.lake.format.types.texts import is_json, parse_interval
from airflow_provider_ducklake.lake.format.types.values import parse_physical
from airflow_provider_ducklake.lake.format.types.variant_bytes import check_variant
from airflow_provider_ducklake.lake.format.types.variants import decode_variant, encode_variant
from airflow_provider_ducklake.lake.storage.deletes.vectors import (
    bitmap_of,
    container_of,
    positions,
    vector_of,
    vectors_of,
)
from airflow_provider_ducklake.lake.storage.parquet.modules import footer_length, read_struct, write_struct

MEMORY = 256 * 2**20  # beside what the imports took
MOST = 100_000  # rows of the data file of a vector
NUMBERS = (0, 1, 0xFF, 0x10000, 0x7FFFFFFF, 0xFFFFFFFF)
OWN = (ValueError, ArithmeticError, DuckLakeError, ExpressionError)


@dataclass(frozen=True)
class Decoder:
    """What is called, with the whole inputs that are mutated, and the errors that are its own."""

    call: Callable[[bytes], object]
    inputs: tuple[bytes, ...]
    own: tuple[type[Exception], ...] = (ValueError,)


def of_text(call: Callable[[str], object], *texts: str) -> Decoder:
    return Decoder(lambda data: call(data.decode("latin-1")), tuple(one.encode() for one in texts), OWN)


def footer() -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": [1, 2], "b": ["x", "y"], "c": [[1], []], "s": [{"x": 1}, None]}), sink)
    content = sink.getvalue().to_pybytes()
    return content[-8 - footer_length(content[-8:], "it") : -8]


def geometries() -> tuple[bytes, ...]:
    point = struct.pack("<BIdd", 1, 1, 1, 2)
    polygon = struct.pack(">BIII8d", 0, 3, 1, 4, *range(8))
    return (
        point,
        struct.pack("<BII", 1, 4, 3) + point * 3,
        struct.pack("<BII", 1, 7, 2) + struct.pack(">BII", 0, 6, 2) + polygon * 2 + point,
    )


def decoders() -> dict[str, Decoder]:
    rows = pa.array([*range(3), *range(70_000, 76_000), 2**33], pa.int64())
    runs = struct.pack("<QII", 1, 0, 12347) + b"\x01" + struct.pack("<HHHHHHH", 0, 29, 2, 5, 9, 50, 19)
    vector = vector_of(rows)
    metadata, value = encode_variant({"a": [1, 2.5, None, "x" * 70], "bc": {"d": b"xy", "e": True}})
    types = [parse_type(one) for one in ("int32", "decimal(18,3)", "date", "timestamptz", "uuid", "blob")]
    values = ("1", "-12.345", "2020-01-01", "2020-01-01 10:00:00.123456+00", "\\x00ab", "[1, {'a': NULL}]")

    def all_types(read: Callable[..., object]) -> Callable[[str], object]:
        return lambda text: read(types[len(text) % len(types)], text)

    return {
        "roaring": Decoder(lambda data: positions(data, MOST), (bitmap_of(rows), runs)),
        "puffin": Decoder(vectors_of, (container_of([(1, 2, vector), (2, 4, vector)], "/x/y.parquet"),)),
        "thrift": Decoder(lambda data: write_struct(read_struct(data)[0]), (footer(),), (DuckLakeError,)),
        "variant": Decoder(lambda data: decode_variant(metadata, data), (value,)),
        "checked variant": Decoder(lambda data: check_variant(metadata, data), (value,)),
        "names of variants": Decoder(lambda data: check_variant(data, value), (metadata,)),
        "wkb": Decoder(check_wkb, geometries()),
        "finite wkb": Decoder(is_finite, geometries()),
        "wkt": of_text(wkb_of_wkt, "POLYGON ((0 0, 1 1, 0 1, 0 0))", "MULTIPOINT ((1 2), EMPTY)"),
        "geometry statistics": of_text(
            GeometryStats.of_text, GeometryStats(((0.0, 5.0), None, None, None), frozenset({"point"})).text
        ),
        "value": of_text(all_types(parse_physical), *values),
        "cast": of_text(all_types(parse_cast), *values),
        "literal": of_text(all_types(parse_literal), *values),
        "interval": of_text(parse_interval, "3 months 2 days 04:05:06.7"),
        "age": of_text(times.parse_age, "3 days"),
        "json": of_text(is_json, '{"a": [1, {"b": "\\ud83d\\ude00"}], "c": 1e308}'),
        "type": of_text(parse_type, "struct(a map(varchar, int32[]), b decimal(18,3))"),
        "expression": of_text(parse_expression, "a + f(b) * CASE WHEN c THEN 1 END", "x::INT[1] OR y"),
    }


def mutated(draw: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(draw.choice((1, 1, 1, 2, 3, 8))):
        place = draw.randrange(len(changed) + 1)
        match draw.randrange(5):
            case 0:
                changed[place : place + 1] = draw.randbytes(1)
            case 1:
                del changed[place : place + draw.choice((1, 4, 16))]
            case 2:
                changed[place:place] = draw.randbytes(draw.choice((1, 4, 8)))
            case 3:
                number = struct.pack(draw.choice(("<I", ">I")), draw.choice((*NUMBERS, len(changed))))
                changed[place : place + 4] = number
            case _:
                changed[place:place] = changed[:place][:500] * draw.choice((1, 1, 50))
    return bytes(changed[: 64 * 1024])


def found(seed: int, rounds: int) -> Iterator[str]:
    draw = random.Random(seed)
    for name, decoder in decoders().items():
        for _ in range(rounds):
            data = mutated(draw, draw.choice(decoder.inputs))
            try:
                decoder.call(data)
            except decoder.own:
                pass
            except Exception as error:  # noqa: BLE001 - what it is is the finding
                yield f"{name}: {type(error).__name__} ({error!s:.80}) for {data[:60].hex()}… of {len(data)}"


def used_memory() -> int:
    with open("/proc/self/statm", encoding="ascii") as status:  # noqa: PTH123 - no file
        return int(status.read().split()[0]) * resource.getpagesize()


if __name__ == "__main__":
    decoders()  # which imports the rest
    limit = used_memory() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    lines = list(found(int(sys.argv[1]), int(sys.argv[2])))
    sys.exit("\n".join(lines) or 0)
