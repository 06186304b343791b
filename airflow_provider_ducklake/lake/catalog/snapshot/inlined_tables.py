"""The dynamic catalog tables that hold inlined rows and inlined deletes.

*Source:* the tables that the reference creates for a column of each type (docs/sources.md, catalog tables and
inlining).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.types import BLOB, REAL, VARCHAR, TypeEngine, UserDefinedType

from ...format.names.identifiers import KEYWORDS, fold, quote
from ...format.schema import TableSchema
from ...format.types import ducklake_types as dl
from ..database.tables import CatalogInteger, CatalogTables, catalog_table

if TYPE_CHECKING:
    from ...format.files import InlinedForm
    from ...format.versions import WriteVersion

# Our names of the system columns of inlined tables; the version decides their names in the database.
ROW_ID, BEGIN_SNAPSHOT, END_SNAPSHOT = _KEYS = "row_id", "begin_snapshot", "end_snapshot"


@dataclass(frozen=True, slots=True)
class InlinedScalar:
    """The declared types of a scalar type's columns; DuckDB's are its own, other databases' are not written.

    ``former`` are those that DuckLake 0.3 declared in PostgreSQL, where they were others. ``duckdb`` is the
    name in DuckDB's SQL, where it is not that of the type.
    """

    sqlite: TypeEngine[Any] = field(default_factory=VARCHAR)
    postgresql: TypeEngine[Any] = field(default_factory=VARCHAR)
    reads_text: bool = False
    former: str = ""
    duckdb: str = ""


_TEXTS_OF_0_3 = "varchar text json jsonb"
INLINED_SCALARS = {
    "boolean": InlinedScalar(sa.BigInteger(), sa.Boolean()),
    "int8": InlinedScalar(sa.BigInteger(), sa.SmallInteger(), duckdb="TINYINT"),
    "int16": InlinedScalar(sa.BigInteger(), sa.SmallInteger(), duckdb="SMALLINT"),
    "int32": InlinedScalar(sa.BigInteger(), sa.Integer(), duckdb="INTEGER"),
    "int64": InlinedScalar(sa.BigInteger(), sa.BigInteger(), duckdb="BIGINT"),
    "int128": InlinedScalar(duckdb="HUGEINT"),
    "uint8": InlinedScalar(sa.BigInteger(), sa.Integer(), duckdb="UTINYINT"),
    "uint16": InlinedScalar(sa.BigInteger(), sa.Integer(), duckdb="USMALLINT"),
    "uint32": InlinedScalar(sa.BigInteger(), sa.BigInteger(), duckdb="UINTEGER"),
    "uint64": InlinedScalar(duckdb="UBIGINT"),
    "uint128": InlinedScalar(duckdb="UHUGEINT"),
    "float32": InlinedScalar(VARCHAR(), REAL(), duckdb="FLOAT"),
    "float64": InlinedScalar(VARCHAR(), sa.Double(), duckdb="DOUBLE"),
    # PostgreSQL's text cannot hold a NUL
    "varchar": InlinedScalar(VARCHAR(), sa.LargeBinary(), former=_TEXTS_OF_0_3),
    "json": InlinedScalar(VARCHAR(), sa.LargeBinary(), former=_TEXTS_OF_0_3),
    "blob": InlinedScalar(BLOB(), sa.LargeBinary()),
    "uuid": InlinedScalar(VARCHAR(), sa.Uuid(as_uuid=False)),
    "date": InlinedScalar(former="date"),
    "time": InlinedScalar(VARCHAR(), sa.Time(), reads_text=True),
    "timetz": InlinedScalar(VARCHAR(), sa.Time(timezone=True), reads_text=True, duckdb="TIME WITH TIME ZONE"),
    "time_ns": InlinedScalar(),
    "timestamp": InlinedScalar(former="timestamp"),
    "timestamp_s": InlinedScalar(),
    "timestamp_ms": InlinedScalar(),
    "timestamp_ns": InlinedScalar(),
    "timestamptz": InlinedScalar(former="timestamptz", duckdb="TIMESTAMP WITH TIME ZONE"),
    "timestamptz_ns": InlinedScalar(),
    "interval": InlinedScalar(VARCHAR(), sa.Interval(), reads_text=True),
    "variant": InlinedScalar(BLOB(), sa.LargeBinary()),
    "geometry": InlinedScalar(),
    "null": InlinedScalar(sa.BigInteger(), sa.Integer(), duckdb="INTEGER"),
    "unknown": InlinedScalar(duckdb="VARCHAR"),
}


# elsewhere as in SQLite; of DuckDB's own types we ask for texts
_SQLITE = {name: row.sqlite for name, row in INLINED_SCALARS.items()}
_POSTGRES = {"decimal": sa.Numeric(), **{name: row.postgresql for name, row in INLINED_SCALARS.items()}}
_STORED: dict[str, dict[str, TypeEngine[Any]]] = {"postgresql": _POSTGRES}


class _DuckDbType(UserDefinedType[Any]):
    """A column of DuckDB's own type, whatever it is; values are bound as texts, which it casts."""

    cache_ok = True

    def __init__(self, name: str) -> None:
        self.name = name

    def get_col_spec(self, **_: object) -> str:
        return self.name


def duckdb_type(type_: dl.DuckLakeType) -> str:
    """Return a type as DuckDB's SQL writes it; its INT8 has 8 bytes, DuckLake's int8 has 8 bits.

    >>> duckdb_type(dl.ListType(dl.ScalarType("int8")))
    'TINYINT[]'
    """
    match type_:
        case dl.DecimalType(precision, scale):
            return f"DECIMAL({precision},{scale})"
        case dl.ListType(element):
            return f"{duckdb_type(element)}[]"
        case dl.StructType(fields):
            return f"STRUCT({', '.join(f'{quote(one.name)} {duckdb_type(one.type)}' for one in fields)})"
        case dl.MapType(key, value):
            return f"MAP({duckdb_type(key)}, {duckdb_type(value)})"
        case dl.ScalarType(name):
            return INLINED_SCALARS[name].duckdb or name.upper()


_NATIVE: dict[str, Callable[[dl.DuckLakeType], TypeEngine[Any]]] = {
    "duckdb": lambda type_: _DuckDbType(duckdb_type(type_))
}


def _stored_type(type_: dl.DuckLakeType, dialect_name: str) -> TypeEngine[Any]:
    """Return the declared type of a column; types without an equivalent are text, nested ones too."""
    if dialect_name in _NATIVE:
        return _NATIVE[dialect_name](type_)
    types = _STORED.get(dialect_name, _SQLITE)
    match type_:
        case dl.DecimalType(precision, scale) if "decimal" in types:
            return sa.Numeric(precision, scale)
        case dl.ScalarType(name):
            return types[name]
        case _:
            return VARCHAR()


class InlinedValue(sa.TypeDecorator[Any]):
    """A user's column in an inlined table; values are those of ``storage.rows.inlined_values``."""

    impl = VARCHAR
    cache_ok = True

    def __init__(self, type_: dl.DuckLakeType) -> None:
        super().__init__()
        self.type_ = type_

    def load_dialect_impl(self, dialect: sa.Dialect) -> TypeEngine[Any]:
        return _stored_type(self.type_, dialect.name)

    def column_expression(self, column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
        """Read times as text: Python's own end before 24:00:00."""
        is_text = isinstance(self.type_, dl.ScalarType) and INLINED_SCALARS[self.type_.name].reads_text
        return sa.cast(column, VARCHAR) if is_text else column


def inlined_table_name(table_id: int, schema_version: int | str) -> str:
    """Return the name of the table for rows inlined into one column layout."""
    return f"ducklake_inlined_data_{table_id}_{schema_version}"


def inlined_table(schema: TableSchema, table_id: int, schema_version: int, tables: CatalogTables) -> sa.Table:
    """Return the table for rows inlined into a column layout, for CREATE, INSERT and SELECT."""
    return _table(inlined_table_name(table_id, schema_version), schema, tables)


def bare_table(name: str, tables: CatalogTables) -> sa.Table:
    """Return an inlined table with the columns that say which row it is and when it lived, and no others."""
    return _table(name, TableSchema(()), tables)


@lru_cache(maxsize=512)
def _table(name: str, schema: TableSchema, tables: CatalogTables) -> sa.Table:
    """Return one and the same table each time, so that SQLAlchemy compiles its statements once."""
    named = zip(tables.writer.inlined_columns, _KEYS, strict=True)
    return catalog_table(
        name,
        sa.MetaData(schema=tables.metadata_schema),
        *(sa.Column(one, CatalogInteger(is_needed=key != END_SNAPSHOT), key=key) for one, key in named),
        *(
            sa.Column(_written(column.name), InlinedValue(column.type), key=cell_key(column.name))
            for column in schema.columns
        ),
    )


def cell_key(name: str) -> str:
    """Return the key of a user's column in ``Table.c``, which no system column has."""
    return f"column {name}"


def names_of(table: sa.Table) -> list[str]:
    """Return the names of a table's columns as the database has them, in its order."""
    return [column.name for column in table.columns]


_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OF_SQLITE = frozenset({"autoincrement"})  # the only word that is free in DuckDB and not there


def _written(name: str) -> str:
    """Return a column's name as DuckDB writes it into SQL: bare where it can be.

    So PostgreSQL has ``Total`` in lower case. Names without capitals are the same either way; SQLAlchemy does
    not list all the words that a database reserves.
    """
    folded = fold(name)
    is_bare = folded != name and _PLAIN.fullmatch(name) is not None and folded not in KEYWORDS
    return sa.quoted_name(name, quote=not is_bare or folded in _OF_SQLITE)


def inlined_delete_name(table_id: int) -> str:
    """Return the name of the table of deletes in Parquet files."""
    return f"ducklake_inlined_delete_{table_id}"


def inlined_delete_table(table_id: int, metadata_schema: str | None) -> sa.Table:
    """Return the table of deletes in Parquet files; its ``row_id`` is a position in the file, from 0."""
    columns = ("file_id", ROW_ID, BEGIN_SNAPSHOT)
    return catalog_table(
        inlined_delete_name(table_id),
        sa.MetaData(schema=metadata_schema),
        *(sa.Column(one, CatalogInteger(is_needed=True)) for one in columns),
    )


def why_not_inlined(schema: TableSchema, form: InlinedForm | None, writer: WriteVersion) -> str | None:
    """Explain why a catalog database of that form cannot hold inlined rows of a table; None if it can.

    Whether given values can be stored is another question: ``storage.rows.inlined_values.cells``.
    """
    if form is None:
        return "this release cannot read inlined rows from this kind of database"
    if len(schema.columns) + len(writer.inlined_columns) > form.max_columns:
        return f"{len(schema.columns)} columns are too many for a table in the catalog's database"
    return _unfit_name(schema, form, writer) or _unfit_type(schema, form, writer)


def _unfit_name(schema: TableSchema, form: InlinedForm, writer: WriteVersion) -> str | None:
    for name in schema.names:
        if fold(name) in writer.reserved or fold(name) in writer.inlined_columns:
            return f"column {name} has the name of a system column"
        if fold(name) in form.kept_names:
            return f"column {name} has a name that the database reserves"
        if form.max_name_bytes is not None and len(name.encode()) > form.max_name_bytes:
            return f"the name of column {name} is longer than {form.max_name_bytes} bytes"
    return None


def _unfit_type(schema: TableSchema, form: InlinedForm, writer: WriteVersion) -> str | None:
    for column in schema.walk():
        kind = column.type.facts.kind
        if kind in (dl.ScalarKind.GEOMETRY, dl.ScalarKind.OTHER) or (
            kind is dl.ScalarKind.VARIANT and not (writer.inlines_variants and column in schema.columns)
        ):
            return f"column {column.name} has type {column.type}"
    for column in schema.columns:
        row = column.type.facts
        if row.kind is dl.ScalarKind.TIME and row.per_second > form.finest_clock:
            return f"the database has no type for column {column.name} ({column.type})"
    return None
