"""Parquet files of others, for a lake to take in."""

import uuid
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

_STRUCT = pa.struct([("b", pa.string()), ("a", pa.int32())])
_MOMENT = datetime(1969, 12, 31, 23, 59, 59, 500000)  # noqa: DTZ001 - the types have no zone


def write_given(folder: Path) -> None:
    """Write files whose columns fit the table `t` of the corpus, each in another way."""
    folder.mkdir(parents=True)
    plain = {
        "i": pa.array([1, 2, 3, None], pa.int64()),
        "s": ["a", None, "c", "d"],
        "st": pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": None}, {"a": 4, "b": ""}], _STRUCT),
        "l": pa.array([[1, None], [], None, [4]], pa.list_(pa.int32())),
        "m": pa.array([[("k", 1)], [], None, [("z", None)]], pa.map_(pa.string(), pa.int32())),
    }
    pq.write_table(pa.table(plain), folder / "plain.parquet")
    ids = [pa.field("S", pa.string(), metadata={"PARQUET:field_id": "1"}),
           pa.field("I", pa.int64(), metadata={"PARQUET:field_id": "2"})]  # fmt: skip
    pq.write_table(
        pa.table([pa.array(["q", "r"]), pa.array([5, 6], pa.int64())], schema=pa.schema(ids)),
        folder / "with_ids.parquet",
    )
    wide = {
        "extra": [1.5],
        "more": pa.array([{"x": 1}]),
        **{name: values[:1] for name, values in plain.items()},
    }
    pq.write_table(pa.table(wide), folder / "wide.parquet")
    pq.write_table(pa.table({"region": ["r"], "i": pa.array([8], pa.int8())}), folder / "narrow.parquet")
    large = {
        "s": pa.array(["big"], pa.large_string()),
        "l": pa.array([[1, 2]], pa.large_list(pa.int32())),
        "i": pa.array([9], pa.int32()),
    }
    pq.write_table(pa.table(large), folder / "large.parquet", version="1.0", use_dictionary=False)
    for region, number in (("north%20sea", 10), ("it's", 11), ("__HIVE_DEFAULT_PARTITION__", 12)):
        place = folder / "hive" / f"region={region}"
        place.mkdir(parents=True)
        pq.write_table(pa.table({"i": pa.array([number], pa.int64()), "s": ["h"]}), place / "a.parquet")
    groups = pa.table({"i": pa.array(range(1000), pa.int64()), "s": [str(n) for n in range(1000)]})
    pq.write_table(groups, folder / "groups.parquet", row_group_size=100, compression="zstd")
    pq.write_table(groups.slice(0, 0), folder / "empty.parquet")
    _write_types(folder)


def _write_types(folder: Path) -> None:
    values = {
        "u8": pa.array([1, 255], pa.uint8()),
        "u64": pa.array([0, 2**64 - 1], pa.uint64()),
        "f": pa.array([float("nan"), -0.0], pa.float32()),
        "d": pa.array([date(1, 1, 1), None]),
        "t": pa.array([time(1, 2, 3, 4), None], pa.time64("us")),
        "ms": pa.array([_MOMENT, None], pa.timestamp("ms")),
        "us": pa.array([_MOMENT, None], pa.timestamp("us")),
        "ns": pa.array([_MOMENT, None], pa.timestamp("ns")),
        "tz": pa.array([_MOMENT.replace(tzinfo=UTC), None], pa.timestamp("us", "Europe/Berlin")),
        "n": pa.array([Decimal("-1.500"), None], pa.decimal128(20, 3)),
        "x": pa.array([b"\0\xff", b""], pa.binary()),
        "fx": pa.array([b"abc", None], pa.binary(3)),
        "dict": pa.array(["a", "b"]).dictionary_encode(),
        "big": pa.array(["a", None], pa.large_string()),
        "u": pa.array([uuid.UUID(int=255).bytes, None], pa.uuid()),
        "b": pa.array([True, None]),
    }
    pq.write_table(pa.table(values), folder / "types.parquet")
