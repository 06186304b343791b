"""Macros: expressions and queries with parameters, as the catalog keeps them.

*Source:* ``ducklake_macro``, ``ducklake_macro_impl`` and ``ducklake_macro_parameters``, as the reference
fills them (docs/sources.md, DDL).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_provider_ducklake.lake.spec.names.identifiers import QualifiedName

SCALAR, TABLE = "scalar", "table"  # the type of an implementation
DIALECT = "duckdb"  # of bodies
EXPRESSION = "expression"  # the type of a default that is SQL, since 1.1
_UNKNOWN, _NO_DEFAULT = "unknown", "NULL"


@dataclass(frozen=True, slots=True)
class MacroDefault:
    """The default of a parameter: a value's text and its DuckLake type, or SQL and ``expression``."""

    text: str
    type: str


@dataclass(frozen=True, slots=True)
class MacroParameter:
    """A parameter; a type is a DuckLake type, or if it is nested DuckDB's text of it; None: any."""

    name: str
    type: str | None = None
    default: MacroDefault | None = None

    @classmethod
    def of_row(
        cls, name: str, type_: str | None, default: str | None, default_type: str | None
    ) -> MacroParameter:
        """Return what a row of ``ducklake_macro_parameters`` says."""
        known = default_type not in (None, _UNKNOWN)
        return cls(
            name,
            None if type_ in (None, _UNKNOWN) else type_,
            MacroDefault(default or "", default_type or "") if known else None,
        )

    @property
    def columns(self) -> dict[str, str]:
        """The columns of its row that say so."""
        return {
            "parameter_name": self.name,
            "parameter_type": self.type or _UNKNOWN,
            "default_value": self.default.text if self.default else _NO_DEFAULT,
            "default_value_type": self.default.type if self.default else _UNKNOWN,
        }


@dataclass(frozen=True, slots=True)
class MacroOverload:
    """One body of a macro: an expression, or the query of a table macro."""

    sql: str
    parameters: tuple[MacroParameter, ...] = ()
    dialect: str = DIALECT


@dataclass(frozen=True, slots=True)
class MacroDefinition:
    """What a macro stands for; a call takes the overload that its arguments fit."""

    overloads: tuple[MacroOverload, ...]
    is_table: bool = False


@dataclass(frozen=True, slots=True)
class Macro:
    """A macro of a lake. A scalar macro and a table macro of one schema can have the same name."""

    name: QualifiedName
    definition: MacroDefinition
