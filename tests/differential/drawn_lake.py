"""A lake's definitions kept in Python, from which changes are drawn that are possible."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from uuid import UUID

from airflow_provider_ducklake.lake.format.defaults import SqlDefault, SqlExpression
from airflow_provider_ducklake.lake.format.names.identifiers import quote

ID = "id"  # a column of every table that stays as it is: it tells which rows a statement deletes

SCALARS = {
    "boolean": "boolean",
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "integer",
    "int64": "bigint",
    "uint8": "utinyint",
    "uint16": "usmallint",
    "uint32": "uinteger",
    "uint64": "ubigint",
    "float32": "float",
    "float64": "double",
    "decimal(9,2)": "decimal(9,2)",
    "decimal(18,2)": "decimal(18,2)",
    "decimal(38,4)": "decimal(38,4)",
    "date": "date",
    "time": "time",
    "timestamp": "timestamp",
    "timestamptz": "timestamptz",
    "varchar": "varchar",
    "json": "json",
    "blob": "blob",
    "uuid": "uuid",
    "geometry": "geometry",
    "variant": "variant",
}
_UUID = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
_NESTED = [one for one in SCALARS if one.startswith(("int", "uint", "decimal", "bool"))]
WIDER = {
    "int8": ("int16", "int64"),
    "int16": ("int32",),
    "int32": ("int64",),
    "uint8": ("uint16", "int16", "int64"),
    "uint16": ("uint32", "int32"),
    "uint32": ("uint64", "int64"),
    "decimal(9,2)": ("decimal(18,2)", "decimal(38,4)"),
    "decimal(18,2)": ("decimal(38,4)",),
}
LITERALS: dict[str, list[tuple[str, SqlDefault]]] = {
    "boolean": [("'true'", True)],
    "int8": [("-128", -128), ("'7'", "7")],
    "int32": [("7", 7), ("-1", -1)],
    "int64": [("9223372036854775807", 2**63 - 1)],
    "uint8": [("255", 255)],
    "float64": [("0.1", Decimal("0.1")), ("'-inf'", "-inf")],
    "decimal(9,2)": [("1.5", Decimal("1.5")), ("7", 7)],
    "date": [("'2024-02-29'", date(2024, 2, 29))],
    "timestamp": [("'2024-01-01 10:00:00.123456'", datetime.fromisoformat("2024-01-01T10:00:00.123456"))],
    "varchar": [("'it''s'", "it's"), ("''", ""), ("'üñ\n'", "üñ\n")],
    "uuid": [(f"'{_UUID}'", UUID(_UUID))],
}
EXPRESSIONS = {"date": "current_date", "timestamptz": "now()", "uuid": "uuid()", "varchar": "upper('x')"}


_FEW = {
    "boolean": ["true", "false"],
    "float32": ["1.5", "-2.25", "0.1", "'inf'", "'-inf'"],
    "float64": ["1.5", "-2.25", "0.1", "'inf'", "'-inf'", "1e300"],
    "varchar": ["''", "'a'", "'B'", "'ä'", "'it''s'", "'x/y=z %'", "'😀'", "'\n'"],
    "json": ["'{\"a\": [1, null]}'", "'null'", "'1'"],
    "blob": ["'ab'", r"'\x00\xFF'", "''"],
    "variant": ["{'a': 1, 'b': 'x'}", "{'a': 2}", "7::BIGINT", "'text'", "[1, 2]", "{'c': {'d': 1.5}}"],
    "geometry": ["'POINT (1 -2.5)'", "'POINT EMPTY'", "'LINESTRING Z (0 0 7, 1 1 -7)'", "'POINT (9 9)'"],
}


@dataclass(eq=False)
class Struct:
    fields: list["Field"]

    @property
    def ours(self) -> str:
        return f"struct({', '.join(f'{one.name} {ours(one.type)}' for one in self.fields)})"

    @property
    def sql(self) -> str:
        return f"struct({', '.join(f'{one.name} {sql(one.type)}' for one in self.fields)})"


@dataclass(eq=False)
class Map:
    value: "Type"

    @property
    def ours(self) -> str:
        return f"map(varchar, {ours(self.value)})"

    @property
    def sql(self) -> str:
        return f"map(varchar, {sql(self.value)})"


@dataclass(eq=False)
class List:
    element: "Type"

    @property
    def ours(self) -> str:
        return f"{ours(self.element)}[]"

    @property
    def sql(self) -> str:
        return f"{sql(self.element)}[]"


Type = str | Struct | Map | List


@dataclass(eq=False)
class Field:
    name: str
    type: Type


@dataclass(eq=False)
class Column(Field):
    is_null_free: bool = False  # no NULL is ever drawn for it, and the first rows had it
    is_required: bool = False
    has_comment: bool = False
    default: str = ""  # as SQL
    has_initial_default: bool = False

    @property
    def sql(self) -> str:
        return quote(self.name)


@dataclass(eq=False)
class Batch:
    """Rows of one Parquet file; ``deletes`` says where its deletes are kept."""

    deletes: str = ""


@dataclass(eq=False)
class Table:
    schema: str
    name: str
    columns: list[Column]
    partition: list[Column] = field(default_factory=list)
    sort: list[Column] = field(default_factory=list)
    partition_key: str = ""  # as SQL
    sort_key: str = ""
    live: dict[int, "Batch | None"] = field(default_factory=dict)  # by id; None: an inlined row
    had_rows: bool = False
    was_altered: bool = False
    has_layout: bool = False  # a catalog table for inlined rows
    has_comment: bool = False

    @property
    def sql(self) -> str:
        return f"{quote(self.schema)}.{quote(self.name)}"

    @property
    def qualified(self) -> tuple[str, str]:
        return self.schema, self.name

    @property
    def is_inlinable(self) -> bool:
        """Whether rows can be in the catalog."""
        return all(one.type not in ("geometry", "variant") for one in self.columns)

    def fields(self) -> Iterator[tuple[tuple[str, ...], Struct]]:
        """Yield every struct with its path; not those in lists, which the reference cannot alter."""
        for column in self.columns:
            yield from _structs((column.sql,), column.type)


@dataclass(eq=False)
class View:
    schema: str
    name: str
    was_altered: bool = False

    @property
    def sql(self) -> str:
        return f"{quote(self.schema)}.{quote(self.name)}"

    @property
    def qualified(self) -> tuple[str, str]:
        return self.schema, self.name


@dataclass(eq=False)
class Lake:
    """What is in the lake, and how many rows a statement keeps in the catalog by scope."""

    schemas: list[str] = field(default_factory=lambda: ["main"])
    tables: list[Table] = field(default_factory=list)
    views: list[View] = field(default_factory=list)
    limits: dict[object, int] = field(default_factory=dict)  # by table, schema name, or None

    def limit(self, table: Table) -> int:
        scopes: list[object] = [table, table.schema, None]
        return next((self.limits[scope] for scope in scopes if scope in self.limits), 10)


def ours(type_: Type) -> str:
    return type_ if isinstance(type_, str) else type_.ours


def sql(type_: Type) -> str:
    return SCALARS[type_] if isinstance(type_, str) else type_.sql


def _structs(path: tuple[str, ...], type_: Type) -> Iterator[tuple[tuple[str, ...], Struct]]:
    match type_:
        case Struct(fields):
            yield path, type_
            for one in fields:
                yield from _structs((*path, one.name), one.type)
        case Map(value):
            yield from _structs((*path, "value"), value)


class Values:
    """Draws names, types and values; ids and names never repeat."""

    def __init__(self, random_: random.Random) -> None:
        self.random = random_
        self.count = 0
        self.without: frozenset[str] = frozenset()  # types that are not drawn

    def next(self) -> int:
        self.count += 1
        return self.count

    def name(self, letter: str) -> str:
        number = self.next()
        odd = (f'{letter}"{number}. é', f"{letter} {number}, 'x'", f"{letter.upper()}{number}")
        return self.random.choice([*[f"{letter}{number}"] * 3, *odd])

    def column(self, *, nested: bool = True) -> Column:
        type_ = self.nested() if nested and self.random.random() < 0.25 else self.scalar()
        return Column(self.name("c"), type_, is_null_free=isinstance(type_, str) and self._flip())

    def columns(self) -> list[Column]:
        may_be_computed = Column(self.name("c"), self.random.choice(list(EXPRESSIONS)))
        others = [self.column() for _ in range(self._size(2, 4))]
        return [Column(ID, "int64", is_null_free=True), *others, may_be_computed]

    def scalar(self, *, nested: bool = False) -> str:
        """Draw a type; inside others the reference inlines some with a CAST, which it does not read back."""
        return self.random.choice(_NESTED if nested else [one for one in SCALARS if one not in self.without])

    def field(self, type_: Type | None = None) -> Field:
        return Field(f"f{self.next()}", type_ or self.scalar(nested=True))

    def nested(self) -> Type:
        inner = Struct([self.field("int32"), self.field()])
        return self.random.choice(
            [
                Struct([self.field("int16"), self.field(), self.field(inner)]),
                Map(inner),
                Map(self.scalar(nested=True)),
                List(self.scalar(nested=True)),
                List(inner),
                Struct([self.field(List("int32")), self.field(Map("int32"))]),
            ]
        )

    def rows(self, table: Table, count: int) -> tuple[list[int], str]:
        """Return the ids of new rows and the query that makes them, all in one partition."""
        ids = [self.next() for _ in range(count)]
        keys = {column: self._cell(column) for column in table.partition}
        made = ", ".join(self._row(table, one, keys) for one in ids)
        return ids, f"SELECT * FROM (VALUES {made}) v({', '.join(one.sql for one in table.columns)})"

    def _row(self, table: Table, row_id: int, keys: dict[Column, str]) -> str:
        cells = [f"{row_id}::bigint"]
        cells += [keys.get(column) or self._cell(column) for column in table.columns[1:]]
        return f"({', '.join(cells)})"

    def _cell(self, column: Column) -> str:
        may_be_null = not (column.is_null_free or column.is_required)
        return f"CAST({self._value(column.type, may_be_null=may_be_null)} AS {sql(column.type)})"

    def _value(self, type_: Type, *, may_be_null: bool = True) -> str:
        if may_be_null and self.random.random() < 0.15:
            return "NULL"
        match type_:
            case Struct(fields):
                return "{" + ", ".join(f"'{one.name}': {self._inner(one.type)}" for one in fields) + "}"
            case Map(value):
                keys = self.random.sample(["a", "b", "ä"], self._size(0, 2))
                listed = ", ".join(f"'{key}': {self._inner(value)}" for key in keys)
                return f"MAP {{{listed}}}"
            case List(element):
                return f"[{', '.join(self._inner(element) for _ in range(self._size(0, 3)))}]"
            case _:
                return self.random.choice(self._scalars(type_))

    def _inner(self, type_: Type) -> str:
        return f"CAST({self._value(type_)} AS {sql(type_)})"

    def _scalars(self, type_: str) -> list[str]:
        if type_ in _FEW:
            return _FEW[type_]
        day = f"{self._size(1900, 2100)}-{self._size(1, 12):02}-{self._size(1, 28):02}"
        clock = f"{self._size(0, 23):02}:{self._size(0, 59):02}:07.{self._size(0, 999999):06}"
        drawn = {
            "date": day,
            "time": clock,
            "timestamp": f"{day} {clock}",
            "timestamptz": f"{day} {clock}+00",
            "uuid": str(UUID(int=self.random.getrandbits(128))),
        }
        return [f"'{drawn[type_]}'"] if type_ in drawn else self._numbers(type_)

    def _numbers(self, type_: str) -> list[str]:
        if type_.startswith("decimal"):
            return [f"{self._size(-99999, 99999) / 100:.2f}", "0"]
        bits = int(type_.lstrip("uint"))
        low, high = (0, 2**bits - 1) if type_[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        return [f"({self._size(low, high)})", f"({self._size(0, 9)})", f"({low})", f"({high})"]

    def _size(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def _flip(self) -> bool:
        return self.random.random() < 0.5

    def default(self, type_: Type) -> tuple[str, SqlDefault] | None:
        known = LITERALS.get(type_) if isinstance(type_, str) else None
        return self.random.choice(known) if known else None

    @staticmethod
    def expression(type_: Type) -> SqlExpression | None:
        known = EXPRESSIONS.get(type_) if isinstance(type_, str) else None
        return SqlExpression(known) if known else None
