"""Sort keys that Arrow and Spark compute to the same values as DuckDB, each by its own means.

Only these: everything else differs somewhere, or was not compared. ``lower`` and ``upper`` are computed by
Arrow where all values are ASCII, on which alone the engines agree. Integers that overflow, which DuckDB
refuses, may stand anywhere. *Source:* tests compare the values with the reference's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.spec.names.identifiers import fold
from airflow_provider_ducklake.lake.spec.sql.tree import (
    Call,
    Cast,
    Constant,
    ConstantKind,
    Expression,
    Name,
    Operation,
)
from airflow_provider_ducklake.lake.spec.types.ducklake_types import ScalarKind, ScalarType

if TYPE_CHECKING:
    from airflow_provider_ducklake.lake.spec.schema import Column, TableSchema

_LARGEST = 2**63
_MOST_DIGITS = 19
_SIGNED_BITS = 64
_ARITHMETIC = frozenset({"+", "-", "*"})
_PARTS = frozenset({"year", "month", "day"})
_UNITS = frozenset({"year", "quarter", "month", "week", "day"})
_TIME_UNITS = _UNITS | {"hour", "minute", "second"}
_WIDER = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64}


@dataclass(frozen=True, slots=True)
class Computed:
    """A value for each row: a ``column``, a literal ``value``, or an operation on such values.

    ``kind`` is that of the values; integers fit in 64 bits with their sign.
    """

    operation: str
    kind: ScalarKind
    arguments: tuple[Computed, ...] = ()
    column: str = ""
    value: int | str = 0
    bits: int = 0


def computed(expression: Expression, schema: TableSchema) -> Computed | None:
    """Plan the computation of an expression over rows of a schema; None: it is not one of those."""
    match expression:
        case Name((name,)):
            return _column(next((one for one in schema.columns if fold(one.name) == fold(name)), None))
        case Constant():
            return _literal(expression)
        case Operation(operator, operands):
            found = [computed(one, schema) for one in operands]
            return _operation(operator, tuple(one for one in found if one is not None), len(operands))
        case Call(name, arguments):
            given = [computed(one, schema) for one in arguments]
            return _call(name, tuple(one for one in given if one is not None), len(arguments))
        case Cast(operand, type_, tries=False, literal=False):
            return _cast(computed(operand, schema), type_)
        case _:
            return None


def _column(column: Column | None) -> Computed | None:
    if column is None or not isinstance(column.type, ScalarType):
        return None
    facts = column.type.facts
    if facts.kind is ScalarKind.INTEGER:
        bits = facts.bits + (not facts.signed)
        return Computed("column", facts.kind, column=column.name, bits=bits) if bits <= _SIGNED_BITS else None
    if facts.kind is ScalarKind.TIMESTAMP and (facts.zoned or facts.name != "timestamp"):
        return None
    if facts.kind in (ScalarKind.STRING, ScalarKind.DATE, ScalarKind.TIMESTAMP, ScalarKind.BOOLEAN):
        return Computed("column", facts.kind, column=column.name)
    return None


def _is_long(digits: str) -> bool:
    return digits.isdecimal() and len(digits) <= _MOST_DIGITS and int(digits) < _LARGEST


def _literal(constant: Constant) -> Computed | None:
    if constant.kind is ConstantKind.STRING:
        return Computed("literal", ScalarKind.STRING, value=constant.text)
    digits = constant.text.removeprefix("-")
    if constant.kind is not ConstantKind.NUMBER or not _is_long(digits):
        return None
    return Computed("literal", ScalarKind.INTEGER, value=int(constant.text), bits=32)


def _are(arguments: tuple[Computed, ...], *kinds: ScalarKind) -> bool:
    return tuple(one.kind for one in arguments) == kinds


def _operation(operator: str, given: tuple[Computed, ...], count: int) -> Computed | None:
    if len(given) != count:
        return None
    integers = all(one.kind is ScalarKind.INTEGER for one in given)
    match operator:
        case "+" | "-" | "*" if integers:
            return Computed(operator, ScalarKind.INTEGER, given, bits=_SIGNED_BITS)
        case "%" if integers and given[1].operation == "literal" and int(given[1].value) > 0:
            return Computed("%", ScalarKind.INTEGER, given, bits=given[0].bits)
        case "negative" if integers:
            return Computed("negative", ScalarKind.INTEGER, given, bits=_SIGNED_BITS)
        case "||" if _are(given, ScalarKind.STRING, ScalarKind.STRING):
            return Computed("||", ScalarKind.STRING, given)
        case "IS NULL" | "IS NOT NULL":
            return Computed(operator, ScalarKind.BOOLEAN, given)
        case _:
            return None


def _call(  # noqa: C901, PLR0911 - a line for each function
    name: tuple[str, ...], given: tuple[Computed, ...], count: int
) -> Computed | None:
    *schema, function = (part.lower() for part in name)
    if schema not in ([], ["main"]) or len(given) != count or not given:
        return None
    literals = [one.value if one.operation == "literal" else None for one in given]
    match function:
        case "abs" if _are(given, ScalarKind.INTEGER):
            return Computed("abs", ScalarKind.INTEGER, given, bits=_SIGNED_BITS)
        case "coalesce" if len({one.kind for one in given}) == 1:
            return Computed("coalesce", given[0].kind, given, bits=_SIGNED_BITS)
        case "length" if _are(given, ScalarKind.STRING):
            return Computed("length", ScalarKind.INTEGER, given, bits=_SIGNED_BITS)
        case "lower" | "upper" if _are(given, ScalarKind.STRING):
            return Computed(function, ScalarKind.STRING, given)
        case "left" if _are(given, ScalarKind.STRING, ScalarKind.INTEGER) and _is_count(literals[1]):
            return _slice(given[0], 1, literals[1])
        case "substring" if _are(given, ScalarKind.STRING, ScalarKind.INTEGER, ScalarKind.INTEGER):
            return _slice(given[0], literals[1], literals[2])
        case "year" | "month" | "day" if len(given) == 1:
            return _part(function, given[0])
        case "date_part" if len(given) == 2 and literals[0] in _PARTS:  # noqa: PLR2004 - what, and of what
            return _part(str(literals[0]), given[1])
        case "date_trunc" if len(given) == 2 and isinstance(literals[0], str):  # noqa: PLR2004
            return _truncated(literals[0], given[1])
        case _:
            return None


def _is_count(value: object) -> bool:
    return isinstance(value, int) and value >= 0


def _slice(text: Computed, start: object, length: object) -> Computed | None:
    if not _is_count(start) or not _is_count(length) or not start:
        return None
    assert isinstance(start, int)
    assert isinstance(length, int)
    bounds = (
        Computed("literal", ScalarKind.INTEGER, value=start),
        Computed("literal", ScalarKind.INTEGER, value=length),
    )
    return Computed("substring", ScalarKind.STRING, (text, *bounds))


def _part(part: str, of: Computed) -> Computed | None:
    is_time = of.kind in (ScalarKind.DATE, ScalarKind.TIMESTAMP)
    return Computed(part, ScalarKind.INTEGER, (of,), bits=_SIGNED_BITS) if is_time else None


def _truncated(unit: str, of: Computed) -> Computed | None:
    if unit not in {ScalarKind.DATE: _UNITS, ScalarKind.TIMESTAMP: _TIME_UNITS}.get(of.kind, frozenset()):
        return None
    return Computed("date_trunc", of.kind, (of,), value=unit)


def _cast(operand: Computed | None, type_: str) -> Computed | None:
    if operand is None:
        return None
    if operand.kind is ScalarKind.INTEGER and type_ == "VARCHAR":
        return Computed("text", ScalarKind.STRING, (operand,))
    if operand.kind is ScalarKind.INTEGER and operand.bits <= _WIDER.get(type_, 0):
        return operand
    return operand if operand.kind is ScalarKind.STRING and type_ == "VARCHAR" else None
