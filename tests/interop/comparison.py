"""Tables as the reference and as we read them, compared value by value at every snapshot."""

import json
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.format.names.identifiers import QualifiedName, quote
from airflow_provider_ducklake.lake.format.types.variants import decode_variant
from airflow_provider_ducklake.lake.storage.nested_values.shredding import is_variant
from tests.reference.duckdb_lake import DuckLakeConnection

BOUNDS_EVERY = 4  # snapshots


Tables = dict[QualifiedName, pa.Table | None]


def tables_of(reference: DuckLakeConnection) -> Iterator[tuple[int, Tables]]:
    """Yield the snapshots, each with the rows of all tables as the reference reads them; None: it cannot."""
    reference.sql("SET arrow_lossless_conversion = true")
    for version, names in names_of(reference):
        yield version, {name: _rows(reference, name, version) for name in names}


def _rows(reference: DuckLakeConnection, name: QualifiedName, version: int) -> pa.Table | None:
    """Return a table's rows; None: one in the catalog has other fields in a struct than the table by now."""
    try:
        return arrow_of(reference, f"{quote(name.schema.name)}.{quote(name.name)} AT (VERSION => {version})")
    except duckdb.ConversionException as error:
        if "Failed to read inlined data" not in str(error):
            raise
        return None


def arrow_of(reference: DuckLakeConnection, source: str) -> pa.Table:
    """Return the rows of a table or function, with variants as JSON and times with a zone as UTC.

    DuckDB has no Arrow of the former, and leaves the offset of the latter out, which inlined rows keep.
    """
    described = reference.sql(f"DESCRIBE FROM {source}")
    variants = [quote(column) for column, type_, *_ in described if type_ == "VARIANT"]
    texts = [f"CASE WHEN {one} IS NOT NULL THEN {one}::JSON::VARCHAR END AS {one}" for one in variants]
    zoned = [quote(column) for column, type_, *_ in described if type_ == "TIME WITH TIME ZONE"]
    texts += [f"({one} AT TIME ZONE 'UTC')::TIME AS {one}" for one in zoned]
    columns = f"* REPLACE ({', '.join(texts)})" if texts else "*"
    return _with_json(reference.arrow(f"SELECT {columns} FROM {source}"), variants)


def _with_json(rows: pa.Table, variants: Iterable[str]) -> pa.Table:
    """Return rows with the variants' texts in one spelling."""
    for name in variants:
        place = [quote(one) for one in rows.column_names].index(name)
        texts = [one and _spelled(json.loads(one)) for one in rows.column(place).to_pylist()]
        rows = rows.set_column(place, rows.column_names[place], pa.array(texts, pa.string()))
    return rows


def _spelled(value: object) -> str:
    return json.dumps(value, sort_keys=True)


def with_texts_of_variants(rows: pa.Table) -> pa.Table:
    """Return rows that we read, with variants as DuckDB's JSON of them."""
    for place, column in enumerate(rows.schema):
        if is_variant(column.type):
            values = [
                one and decode_variant(one["metadata"], one["value"])
                for one in rows.column(place).to_pylist()
            ]
            texts = [None if one is None else _spelled(one) for one in values]
            rows = rows.set_column(place, column.name, pa.array(texts, pa.string()))
    return rows


def names_of(reference: DuckLakeConnection) -> Iterator[tuple[int, list[QualifiedName]]]:
    """Yield the snapshots, each with the names of its tables."""
    lives = _lives(reference)
    for (version,) in reference.sql("SELECT snapshot_id FROM ducklake_snapshots('lake') ORDER BY 1"):
        yield version, sorted(name for name, begin, end in lives if begin <= version < (end or version + 1))


def differences(
    lake: Lake, theirs: Iterable[tuple[int, Tables]], *, with_bounds: bool = True
) -> Iterator[str | None]:
    """Compare every table at every snapshot; yield how each differs, or None.

    Bounds of columns are compared at some: there is a question for each. Left out are tables that the
    reference cannot read, or of which it shows a file twice.
    """
    for version, tables in theirs:
        if (ours := lake.tables(at=version)) != list(tables):
            yield f"at {version} the tables {ours} and {list(tables)}"
        for name, rows in tables.items():
            if rows is None:
                continue
            asks = with_bounds and version % BOUNDS_EVERY == 0
            found = difference(lake, name, version, rows, with_bounds=asks)
            if found is None or not _is_shown_twice(lake, name, version, rows):
                yield found


def _is_shown_twice(lake: Lake, name: QualifiedName, version: int, theirs: pa.Table) -> bool:
    """Whether the reference shows more rows, of a file with two delete files; see test_two_delete_files."""
    plan = lake.scan(name, at=version)
    has_two = any(file.older_delete_files for file in plan.files)
    return has_two and theirs.num_rows > lake.read_arrow(name, at=version).num_rows


def _lives(reference: DuckLakeConnection) -> list[tuple[QualifiedName, int, int | None]]:
    """Return the names that tables had, each with the snapshots it had it from and up to."""
    rows = reference.sql(
        "SELECT s.schema_name, t.table_name, greatest(t.begin_snapshot, s.begin_snapshot), "
        "least(t.end_snapshot, s.end_snapshot) FROM __ducklake_metadata_lake.ducklake_table t "
        "JOIN __ducklake_metadata_lake.ducklake_schema s USING (schema_id)"
    )
    return [(QualifiedName.of((schema, table)), begin, end) for schema, table, begin, end in rows]


def difference(
    lake: Lake, name: QualifiedName, version: int, theirs: pa.Table, *, with_bounds: bool
) -> str | None:
    """Return in what a table differs at a snapshot; None: in nothing."""
    where = f"{name} at {version}"
    ours = with_texts_of_variants(_as_lent(lake.read_arrow(name, at=version), theirs.schema))
    if ours.column_names != theirs.column_names:
        return f"{where}: columns {ours.column_names} and {theirs.column_names}"
    for column in ours.column_names:
        own, other = shape(ours.schema.field(column).type), shape(theirs.schema.field(column).type)
        if own != other:
            return f"{where}: {column} is {own} and {other}"
    if (count := lake.row_count(name, at=version)) != theirs.num_rows:
        return f"{where}: the catalog counts {count} of {theirs.num_rows} rows"
    wrong = _rows_differ(where, ours, theirs)
    return _bounds_differ(where, lake, name, version, theirs) if with_bounds and wrong is None else wrong


def _as_lent(ours: pa.Table, theirs: pa.Schema) -> pa.Table:
    """Return rows with variants as bytes where the reference reads these: inlined ones of 1.1, see as_1_0."""
    for place, field in enumerate(ours.schema):
        is_lent = field.name in theirs.names and pa.types.is_binary(theirs.field(field.name).type)
        if is_variant(field.type) and is_lent:
            values = [one and one["metadata"] + one["value"] for one in ours.column(place).to_pylist()]
            ours = ours.set_column(place, field.name, pa.array(values, pa.binary()))
    return ours


def _bounds_differ(where: str, lake: Lake, name: QualifiedName, version: int, theirs: pa.Table) -> str | None:
    for column in theirs.column_names:
        found = lake.column_bounds(name, column, at=version)
        if found is None:
            continue
        values = [one for one in _comparable(theirs[column]) if one is not None]
        own = [_comparable(pa.chunked_array([pa.array([one])]))[0] for one in (found.min, found.max)]
        wanted = [min(values), max(values)] if values else [None, None]
        if own != wanted:
            return f"{where}: {column} has the bounds {own}, not {wanted}"
    return None


def _comparable(column: pa.ChunkedArray) -> list[Any]:
    """Return values in the order of DuckDB: texts by bytes, the rest by number."""
    values = [one for chunk in column.chunks for one in _values(chunk)]
    return [one.encode() if isinstance(one, str) else one for one in values]


def _rows_differ(where: str, ours: pa.Table, theirs: pa.Table) -> str | None:
    if ours.num_rows != theirs.num_rows:
        return f"{where}: {ours.num_rows} and {theirs.num_rows} rows"
    if not ours.num_columns or multiset(ours) == multiset(theirs):
        return None
    for column in ours.column_names:
        own, other = (sorted(plain(one[column])) for one in (ours, theirs))
        if own != other:
            pairs = [pair for pair in zip(own, other, strict=True) if pair[0] != pair[1]]
            return f"{where}: {column} has {pairs[0][0][:300]} and {pairs[0][1][:300]} ({len(pairs)} rows)"
    return f"{where}: rows are put together otherwise"


def multiset(rows: pa.Table) -> list[tuple[str, ...]]:
    """Return the rows in an order, each value as a text that no other value has."""
    return sorted(zip(*(plain(column) for column in rows.columns), strict=True))


def plain(column: pa.ChunkedArray) -> list[str]:
    return [repr(one) for chunk in column.chunks for one in _values(chunk)]


def shape(type_: pa.DataType) -> str:
    """Return what has to be the same of two types: all but the names of lists' and maps' items."""
    if isinstance(type_, pa.BaseExtensionType):
        return _EXTENSIONS[getattr(type_, "type_name", type_.extension_name)]
    if pa.types.is_list(type_):
        return f"list<{shape(type_.value_type)}>"
    if pa.types.is_map(type_):
        return f"map<{shape(type_.key_type)}, {shape(type_.item_type)}>"
    if pa.types.is_struct(type_):
        return f"struct<{', '.join(f'{field.name}: {shape(field.type)}' for field in type_)}>"
    return _LONG if type_ == pa.decimal256(39, 0) else str(type_)


_LONG = "decimal128(38, 0)"  # or decimal256(39, 0), by the values
_EXTENSIONS = {
    "arrow.uuid": "uuid",
    "arrow.json": "string",
    "arrow.bool8": "bool",
    "time_tz": "time64[us]",
    "hugeint": _LONG,
    "uhugeint": _LONG,
}


def _values(array: pa.Array) -> list[object]:
    """Return values such that equal ones, and only those, have one text; times as numbers."""
    type_ = array.type
    if isinstance(type_, pa.BaseExtensionType):
        if getattr(type_, "type_name", None) == "time_tz":
            return [_utc(one) for one in array.storage.to_pylist()]
        if (name := getattr(type_, "type_name", "")) in ("hugeint", "uhugeint"):
            return [one and _number(one, signed=name == "hugeint") for one in array.storage.to_pylist()]
        if type_.extension_name == "arrow.bool8":
            array = array.storage.cast(pa.bool_())
            return array.to_pylist()
        return _values(array.storage)
    if pa.types.is_list(type_) or pa.types.is_map(type_):
        return _parts(array)
    if pa.types.is_struct(type_):
        members = [_values(child) for child in array.flatten()]
        valid = array.is_valid().to_pylist()
        return [tuple(one[row] for one in members) if valid[row] else None for row in range(len(array))]
    if pa.types.is_interval(type_):
        return [None if one is None else tuple(one) for one in array.to_pylist()]
    if pa.types.is_date32(type_) or pa.types.is_time32(type_):
        array = array.cast(pa.int32())
    elif pa.types.is_temporal(type_):
        array = array.cast(pa.int64())
    return array.to_pylist()


def _number(value: bytes, *, signed: bool) -> Decimal:
    return Decimal(int.from_bytes(value, "little", signed=signed))


def _parts(array: pa.Array) -> list[object]:
    if pa.types.is_map(array.type):
        children: list[object] = list(zip(_values(array.keys), _values(array.items), strict=True))
    else:
        children = _values(array.values)
    offsets, valid = array.offsets.to_pylist(), array.is_valid().to_pylist()
    return [children[offsets[row] : offsets[row + 1]] if valid[row] else None for row in range(len(array))]


_ZONE_BITS, _LARGEST_ZONE, _DAY = 24, 16 * 3600 - 1, 86_400 * 10**6


def _utc(packed: bytes | None) -> int | None:
    """Return the microseconds of a day in UTC of DuckDB's time with a zone."""
    if packed is None:
        return None
    bits = int.from_bytes(packed, "little")
    offset = _LARGEST_ZONE - bits % 2**_ZONE_BITS
    return ((bits >> _ZONE_BITS) - offset * 10**6) % _DAY
