"""A lake's content kept in Python, and random steps that change both: ours and the reference's."""

import math
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from airflow_provider_ducklake.lake.format.names.identifiers import quote

ARROW = {
    "int32": pa.int32(),
    "int64": pa.int64(),
    "varchar": pa.string(),
    "float64": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "decimal(9,2)": pa.decimal128(9, 2),
    "decimal(18,2)": pa.decimal128(18, 2),
}
DUCKDB = {"int32": "integer", "int64": "bigint", "float64": "double"}
# Not date to timestamp: in older files the reference looks for the day of a moment, and loses rows.
WIDER = {"int32": "int64", "decimal(9,2)": "decimal(18,2)"}

TEXTS = [None, "", "a", "b", "B", "ä", "it's", 'q"uote', "x/y=z %", "😀", "z" * 300, "\n"]
WILD_TEXTS = [None, "a\0b", "é" * 200, "\x7f" * 300, "m" + "é" * 200, "", "zz"]
# No -0.0: in files that the reference wrote it does not find it by `= 0.0`.
WILD_FLOATS = [None, math.nan, math.inf, -math.inf, 0.0, 1.5, -2.25]
KEYS = [None, "a", "b", "x/y=z %ä", ""]


@dataclass(eq=False)
class Column:
    name: str
    type: str
    stays: bool = False  # never dropped: the id and the partition keys

    @property
    def sql(self) -> str:
        return quote(self.name)


@dataclass(eq=False)
class Table:
    schema: str
    name: str
    columns: list[Column]
    rows: dict[int, dict[Column, Any]] = field(default_factory=dict)  # by the value of the first column
    wild: bool = False  # we write values into it that the reference cannot keep bounds of

    @property
    def sql(self) -> str:
        return f"{quote(self.schema)}.{quote(self.name)}"

    @property
    def qualified(self) -> tuple[str, str]:
        return self.schema, self.name

    def column(self, name: str) -> Column:
        return next(column for column in self.columns if column.name == name)

    def content(self) -> list[tuple[Any, ...]]:
        return sorted_rows(tuple(row[column] for column in self.columns) for row in self.rows.values())

    def matching(self, column: Column, operator: str, value: Any) -> list[int]:
        """Return the ids of the rows for which ``column <operator> value`` is true in DuckDB."""
        found = [row[column] for row in self.rows.values()]
        ids = list(self.rows)
        return sorted(row_id for row_id, own in zip(ids, found, strict=True) if _holds(own, operator, value))


def _holds(own: Any, operator: str, value: Any) -> bool:
    if operator == "IS NULL":
        return own is None
    if own is None or value is None:
        return False
    left, right = order(own), order(value)
    match operator:
        case "=":
            return left == right
        case "<":
            return left < right
        case ">=":
            return left >= right
    raise AssertionError(operator)


def order(value: Any) -> Any:
    """Return what orders values of one column as DuckDB does: NaN above all numbers, text by bytes."""
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value)
    return value.encode() if isinstance(value, str) else value


def sorted_rows(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted((tuple(map(_comparable, row)) for row in rows), key=repr)


def _comparable(value: Any) -> Any:
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0  # no -0.0
    return value


class Values:
    """Draws values, one table at a time, with ids that never repeat."""

    def __init__(self, random_: random.Random) -> None:
        self.random = random_
        self.next_id = 0

    def rows(self, table: Table, count: int, *, wild: bool = False) -> list[dict[Column, Any]]:
        return [self._row(table, wild=wild) for _ in range(count)]

    def _row(self, table: Table, *, wild: bool) -> dict[Column, Any]:
        first, *others = table.columns
        self.next_id += 1
        return {first: self.next_id} | {column: self.value(column, wild=wild) for column in others}

    def value(self, column: Column, *, wild: bool = False) -> Any:
        draw = self.random
        if draw.random() < 0.15:
            return None
        if column.name == "k":
            return draw.choice(KEYS)
        return self._of_type(column.type, wild=wild)

    def _of_type(self, type_: str, *, wild: bool) -> Any:
        draw = self.random
        days = timedelta(days=draw.randint(-900, 900))
        some: dict[str, list[Any]] = {
            "int32": [draw.randint(-9, 9), draw.randint(-(2**31), 2**31 - 1)],
            "int64": [draw.randint(-9, 9), draw.randint(-(2**63), 2**63 - 1)],
            "varchar": WILD_TEXTS if wild else TEXTS,
            "float64": WILD_FLOATS if wild else [draw.uniform(-1e3, 1e3)],
            "date": [date(2024, 1, 1) + days],
            "timestamp": [datetime(2024, 1, 1) + days + timedelta(microseconds=draw.randint(0, 10**10))],  # noqa: DTZ001 - the type has no zone
        }
        decimals = [Decimal(draw.randint(-99_999, 99_999)).scaleb(-2)]
        return draw.choice(some.get(type_, decimals))


def arrow_of(table: Table, rows: list[dict[Column, Any]]) -> pa.Table:
    return pa.table(
        {column.name: pa.array([row[column] for row in rows], ARROW[column.type]) for column in table.columns}
    )
