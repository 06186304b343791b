"""The scalar types: one row each, with every fact that the format and the pure rules know of it.

What Arrow, Spark and the catalog databases make of a type stands in one table each, with exactly the rows of
this one: ``storage/parquet/scalars.py``, ``spark/types/scalars.py``, ``catalog/snapshot/inlined_tables.py``
and ``storage/rows/inlined_values.py``. A type of another ``Kind`` needs its functions in
``spec/types/values.py`` and ``spec/defaults.py`` besides. *Source:* DuckLake spec "Data Types"; the set is
the one the reference accepts.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property
from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.spec.versions import Feature

if TYPE_CHECKING:
    from collections.abc import Mapping


class Kind(Enum):
    """How values of a type are held, spelled and ordered; many types may be of one kind."""

    BOOLEAN = auto()
    INTEGER = auto()
    DECIMAL = auto()
    FLOAT = auto()
    STRING = auto()
    JSON = auto()
    BLOB = auto()
    UUID = auto()
    DATE = auto()
    TIME = auto()
    TIMESTAMP = auto()
    INTERVAL = auto()
    VARIANT = auto()
    GEOMETRY = auto()
    NULL = auto()  # every value is NULL
    OTHER = auto()  # values of which nothing is known here
    NESTED = auto()


NUMBERS = frozenset({Kind.INTEGER, Kind.DECIMAL, Kind.FLOAT})
TEXTS = frozenset({Kind.STRING, Kind.JSON})
BYTES = TEXTS | {Kind.BLOB}  # ordered, and hashed, by their own bytes
TIMES = frozenset({Kind.DATE, Kind.TIME, Kind.TIMESTAMP})
STEPPED = TIMES | {Kind.INTEGER, Kind.DECIMAL}  # whole numbers of a unit


class Hashed(Enum):
    """What the ``bucket`` transform hashes."""

    LONG = auto()  # 8 bytes, little-endian
    DOUBLE = auto()
    BYTES = auto()
    TEXT = auto()  # of DuckDB's cast


class Exact(Enum):
    """Whether bounds in a file's statistics are values of the file."""

    ALWAYS = auto()
    OURS = auto()  # in files that DuckLake's writers made, of columns that never had another type
    NEVER = auto()


@dataclass(frozen=True)
class Scalar:
    """What is known of a scalar type.

    ``sql`` are DuckDB's spellings of it, ``aliases`` those that a catalog's text may have besides its name.
    Numbers have ``bits``. Times count ``per_second`` units a second, of which each value has a multiple of
    ``step``, and are those of UTC where ``zoned``.
    """

    name: str
    kind: Kind
    sql: str = ""
    aliases: str = ""
    bits: int = 0
    signed: bool = True
    per_second: int = 1
    step: int = 1
    zoned: bool = False
    has_days: bool = False  # can be partitioned by year, month and day
    has_hours: bool = False
    hashed: Hashed = Hashed.TEXT
    exact_bounds: Exact = Exact.ALWAYS
    has_stats: bool = True  # the reference keeps statistics of such columns
    counts_nulls: bool = True  # the reference's statistics say whether there are NULLs
    comparable: bool = True  # values have an order
    bounded: bool = True  # the reference's files have bounds of them, if they are comparable
    storable: bool = True  # values survive the reference, and us
    rewritable: bool = True  # values at least go from file to file as they are
    wider: str = ""  # the types to which a column may be promoted
    loses_bounds_as: str = ""  # the one of those in which bounds of this type are no bounds
    since: Feature | None = None  # what a lake's version must have

    @cached_property
    def infinity(self) -> int:
        """The physical form of DuckDB's ``infinity``; ``-infinity`` is its negative."""
        return 2**31 - 1 if self.kind is Kind.DATE else 2**63 - 1

    @cached_property
    def is_double_in_files(self) -> bool:
        """Whether files keep the integers of this type as DOUBLE: Parquet has none so long."""
        return self.kind is Kind.INTEGER and self.bits > 64  # noqa: PLR2004 - the most that Parquet has

    @cached_property
    def is_local_microseconds(self) -> bool:
        """Whether values are timestamps in microseconds without a zone, as Spark has them too."""
        return self.kind is Kind.TIMESTAMP and not self.zoned and (self.per_second, self.step) == (10**6, 1)

    @cached_property
    def physical_range(self) -> tuple[int, int]:
        """The least and the greatest physical form; those of dates and timestamps are infinite."""
        match self.kind:
            case Kind.TIME:
                return 0, 86_400 * self.per_second
            case Kind.INTEGER if self.signed:
                return -(2 ** (self.bits - 1)), 2 ** (self.bits - 1) - 1
            case Kind.INTEGER:
                return 0, 2**self.bits - 1
            case _:
                return -self.infinity, self.infinity


def _integer(bits: int, sql: str, aliases: str, wider: str = "") -> Scalar:
    return Scalar(f"int{bits}", Kind.INTEGER, sql, aliases, bits, wider=wider, hashed=Hashed.LONG)


def _unsigned(bits: int, sql: str, aliases: str, wider: str = "") -> Scalar:
    return Scalar(f"uint{bits}", Kind.INTEGER, sql, aliases, bits, signed=False, wider=wider)


def _timestamp(name: str, sql: str, per_second: int, aliases: str = "", step: int = 1) -> Scalar:
    return Scalar(
        name, Kind.TIMESTAMP, sql, aliases, per_second=per_second, step=step, has_days=True, has_hours=True,
        hashed=Hashed.LONG,
    )  # fmt: skip


_ROWS = (
    Scalar("boolean", Kind.BOOLEAN, "boolean bool logical", "bool", hashed=Hashed.LONG),
    _integer(8, "tinyint int1", "tinyint", "int16 int32 int64"),
    _integer(16, "smallint int2 int16 short", "smallint", "int32 int64"),
    _integer(32, "integer int int4 int32 integral signed", "integer, int", "int64"),
    _integer(64, "bigint int8 int64 long oid", "bigint"),
    # in files DuckDB has them as DOUBLE, without bounds
    Scalar("int128", Kind.INTEGER, "hugeint int128", "hugeint", 128, bounded=False,
           exact_bounds=Exact.NEVER),
    _unsigned(8, "utinyint uint8", "utinyint", "uint16 uint32 uint64 int16 int32 int64"),
    _unsigned(16, "usmallint uint16", "usmallint", "uint32 uint64 int32 int64"),
    _unsigned(32, "uinteger uint32", "uinteger", "uint64 int64"),
    _unsigned(64, "ubigint uint64", "ubigint"),
    Scalar("uint128", Kind.INTEGER, "uhugeint uint128", "uhugeint", 128, signed=False, bounded=False,
           exact_bounds=Exact.NEVER),
    # whose shortest text is another number in float64: DuckDB skipped files by it (observed on 1.5.5)
    Scalar("float32", Kind.FLOAT, "float float4 real", "float, real", 32, hashed=Hashed.DOUBLE,
           exact_bounds=Exact.OURS, wider="float64", loses_bounds_as="float64"),
    Scalar("float64", Kind.FLOAT, "double float8", "double", 64, hashed=Hashed.DOUBLE,
           exact_bounds=Exact.OURS),
    Scalar("varchar", Kind.STRING, "varchar bpchar char nvarchar string text", "text, string",
           hashed=Hashed.BYTES, exact_bounds=Exact.OURS),
    Scalar("json", Kind.JSON, "json", hashed=Hashed.BYTES, exact_bounds=Exact.NEVER),
    Scalar("blob", Kind.BLOB, "blob bytea binary varbinary", "bytea, binary, varbinary", hashed=Hashed.BYTES,
           exact_bounds=Exact.OURS),
    Scalar("uuid", Kind.UUID, "uuid guid", exact_bounds=Exact.OURS),
    Scalar("date", Kind.DATE, "date", has_days=True, hashed=Hashed.LONG, wider="timestamp",
           loses_bounds_as="timestamp"),  # whose texts are longer
    Scalar("time", Kind.TIME, "time", per_second=10**6, has_hours=True, hashed=Hashed.LONG),
    # the reference counts neither values nor NULLs of it, and orders its values by their offset, too
    Scalar("timetz", Kind.TIME, "timetz", "time with time zone", per_second=10**6, zoned=True,
           has_stats=False, counts_nulls=False, comparable=False, exact_bounds=Exact.NEVER),
    Scalar("time_ns", Kind.TIME, "time_ns", per_second=10**9, storable=False, rewritable=False,
           exact_bounds=Exact.NEVER),
    _timestamp("timestamp", "timestamp datetime timestamp_us", 10**6, "datetime, timestamp_us"),
    _timestamp("timestamp_s", "timestamp_s", 10**6, step=10**6),  # Parquet has no seconds
    _timestamp("timestamp_ms", "timestamp_ms", 10**3),
    _timestamp("timestamp_ns", "timestamp_ns", 10**9),
    Scalar("timestamptz", Kind.TIMESTAMP, "timestamptz", "timestamp with time zone", per_second=10**6,
           zoned=True, has_days=True, has_hours=True, hashed=Hashed.LONG, exact_bounds=Exact.OURS),
    Scalar("timestamptz_ns", Kind.TIMESTAMP, "timestamptz_ns", per_second=10**9, zoned=True, has_days=True,
           has_hours=True, hashed=Hashed.LONG, exact_bounds=Exact.OURS, since=Feature.TIMESTAMPTZ_NS),
    Scalar("interval", Kind.INTERVAL, "interval", has_stats=False, counts_nulls=False, comparable=False,
           exact_bounds=Exact.NEVER),
    Scalar(
        "variant", Kind.VARIANT, "variant", bounded=False, counts_nulls=False, comparable=False,
        exact_bounds=Exact.NEVER,
    ),
    Scalar("geometry", Kind.GEOMETRY, "geometry", comparable=False, exact_bounds=Exact.NEVER),
    Scalar("null", Kind.NULL, exact_bounds=Exact.NEVER, since=Feature.NULL_TYPE),
    Scalar("unknown", Kind.OTHER, storable=False, rewritable=False, exact_bounds=Exact.NEVER),
)  # fmt: skip
SCALARS: Mapping[str, Scalar] = {row.name: row for row in _ROWS}
NOT_STORABLE = frozenset(row.name for row in _ROWS if not row.storable)
INTEGERS = frozenset(row.name for row in _ROWS if row.kind is Kind.INTEGER)
DECIMAL = Scalar("decimal", Kind.DECIMAL)  # what holds whatever its precision and scale
NESTED = Scalar("nested", Kind.NESTED, exact_bounds=Exact.NEVER)
