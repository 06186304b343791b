"""The DDL statements, each a value; what they mean for a catalog is decided elsewhere.

A ``path`` is dotted and quoted where SQL needs it, as ``spec.schema.resolve_path`` reads it; every other name
is bare. Partition keys are texts for ``spec.partitioning.parse_partition_by``, sort keys texts such as
``day`` and ``"odd name" DESC NULLS FIRST``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from ...spec.defaults import Literal, SqlDefault
    from ...spec.names.identifiers import QualifiedName, SchemaPath
    from ...spec.tags import MacroDefinition
    from ...spec.types.ducklake_types import DuckLakeType


@dataclass(frozen=True, slots=True)
class CreateSchema:
    name: SchemaPath
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropSchema:
    """``DROP SCHEMA``; ``cascade`` drops what is in it too."""

    name: SchemaPath
    if_exists: bool = False
    cascade: bool = False


@dataclass(frozen=True, slots=True)
class ColumnDefinition:
    """A column of ``CREATE TABLE``; a ``default`` of None is none."""

    name: str
    type: DuckLakeType
    nullable: bool = True
    default: SqlDefault | None = None


@dataclass(frozen=True, slots=True)
class CreateTable:
    table: QualifiedName
    columns: tuple[ColumnDefinition, ...]
    if_not_exists: bool = False
    or_replace: bool = False
    partition_by: tuple[str, ...] = ()
    sort_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DropTable:
    table: QualifiedName
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class RenameTable:
    """``ALTER TABLE … RENAME TO``; the table stays in its schema."""

    table: QualifiedName
    new_name: str


@dataclass(frozen=True, slots=True)
class AddColumn:
    """``ALTER TABLE … ADD COLUMN``; a path of several parts adds a field to a struct."""

    table: QualifiedName
    path: str
    type: DuckLakeType
    default: Literal | None = None
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropColumn:
    table: QualifiedName
    path: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class RenameColumn:
    table: QualifiedName
    path: str
    new_name: str


@dataclass(frozen=True, slots=True)
class SetColumnType:
    table: QualifiedName
    path: str
    type: DuckLakeType


@dataclass(frozen=True, slots=True)
class SetDefault:
    """``ALTER TABLE … ALTER COLUMN … SET DEFAULT``; None for ``SET DEFAULT NULL``."""

    table: QualifiedName
    path: str
    default: SqlDefault | None


@dataclass(frozen=True, slots=True)
class DropDefault:
    table: QualifiedName
    path: str


@dataclass(frozen=True, slots=True)
class SetNotNull:
    table: QualifiedName
    path: str


@dataclass(frozen=True, slots=True)
class DropNotNull:
    table: QualifiedName
    path: str


@dataclass(frozen=True, slots=True)
class SetPartitionedBy:
    """``ALTER TABLE … SET PARTITIONED BY``; no expressions for ``RESET``."""

    table: QualifiedName
    expressions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SetSortedBy:
    """``ALTER TABLE … SET SORTED BY``; no expressions for ``RESET``."""

    table: QualifiedName
    expressions: tuple[str, ...]


OptionValue: TypeAlias = str | bool | tuple[str, ...] | None  # numbers as written; None is NULL


@dataclass(frozen=True, slots=True)
class SetOptions:
    """``ALTER TABLE … SET (option = value, …)``; names are folded."""

    table: QualifiedName
    options: tuple[tuple[str, OptionValue], ...]


@dataclass(frozen=True, slots=True)
class ResetOptions:
    """``ALTER TABLE … RESET (option, …)``; names are folded."""

    table: QualifiedName
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CommentOnTable:
    """``COMMENT ON TABLE``; None for ``IS NULL``."""

    table: QualifiedName
    text: str | None


@dataclass(frozen=True, slots=True)
class CommentOnColumn:
    """``COMMENT ON COLUMN``; None for ``IS NULL``."""

    table: QualifiedName
    path: str
    text: str | None


@dataclass(frozen=True, slots=True)
class CommentOnView:
    """``COMMENT ON VIEW``; None for ``IS NULL``."""

    view: QualifiedName
    text: str | None


@dataclass(frozen=True, slots=True)
class CreateView:
    """``CREATE VIEW``; ``sql`` is the query as the user wrote it."""

    view: QualifiedName
    sql: str
    column_aliases: tuple[str, ...] = ()
    if_not_exists: bool = False
    or_replace: bool = False


@dataclass(frozen=True, slots=True)
class DropView:
    view: QualifiedName
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class RenameView:
    """``ALTER VIEW … RENAME TO``; the view stays in its schema."""

    view: QualifiedName
    new_name: str


@dataclass(frozen=True, slots=True)
class CreateMacro:
    """``CREATE MACRO``; bodies are as the user wrote them."""

    macro: QualifiedName
    definition: MacroDefinition
    if_not_exists: bool = False
    or_replace: bool = False


@dataclass(frozen=True, slots=True)
class DropMacro:
    """``DROP MACRO``; with ``table`` ``DROP MACRO TABLE``, which names table macros only."""

    macro: QualifiedName
    table: bool = False
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class Truncate:
    """``TRUNCATE``: all rows go."""

    table: QualifiedName


Statement: TypeAlias = (
    CreateSchema
    | DropSchema
    | CreateTable
    | DropTable
    | RenameTable
    | AddColumn
    | DropColumn
    | RenameColumn
    | SetColumnType
    | SetDefault
    | DropDefault
    | SetNotNull
    | DropNotNull
    | SetPartitionedBy
    | SetSortedBy
    | SetOptions
    | ResetOptions
    | CommentOnTable
    | CommentOnColumn
    | CommentOnView
    | CreateView
    | DropView
    | RenameView
    | CreateMacro
    | DropMacro
    | Truncate
)
