"""Parquet files that users have, with the types that DuckDB reads them as.

Spark's own reader reads a dataset unless the footer of one of its files shows what that reader cannot decode,
or reads as another type; then pyarrow reads the whole dataset, in Spark's tasks. Both leave on each column
the type that a new table gets for it (``types.spark_types``), where Spark has no such type.
*Source:* the types that DuckDB's ``read_parquet`` shows for each physical and logical type.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from ..errors import DuckLakeError, InvalidInputError, InvalidTypeError, StorageError, UnsupportedFeatureError
from ..format.log_lines import logger
from ..format.names.identifiers import fold
from ..format.partitioning import hive_value
from ..format.schema import Column, TableSchema, new_columns
from ..format.types.ducklake_types import NUMBERS, DuckLakeType, Field, ScalarKind, ScalarType
from ..storage.arrow.arrow_types import arrow_schema, cast_leaf, ducklake_type, type_differences
from ..storage.arrow.reshape import Reshaping, by_name, is_list, nulls, reshape
from ..storage.arrow.scalars import ARROW_INTERVAL, STORED_INTERVAL, from_stored
from ..storage.files.filesystem import open_filesystem
from ..storage.files.parallel import in_threads
from ..storage.nested_values.shredding import VARIANT, read_variants
from ..storage.parquet.footer import children_of_field, is_without_zone
from ..storage.parquet.modules import refuse_encrypted_columns
from ..storage.parquet.opening import batches, open_parquet, parquet_file
from ..storage.parquet.readable import is_in_old_calendar, undecodable
from ..storage.parquet.reader import in_carriers
from .job.codec import Json, decode, encode
from .job.errors import is_of_spark
from .sessions.kind import from_tasks
from .sessions.settings import as_texts, nanos_refused
from .source_files import OF_LISTING, check_links, folder_values, listing_of, own_path, without_scheme
from .types.frames import analysed, types_below, with_types, with_values, without_bounds
from .types.names import quoted
from .types.spark_types import TYPE_KEY, carrier_type, read_type, to_insertable

# INT96 of Parquet sources: times without zone, as DuckDB reads them, unless a table's column holds
# instants.
#
# The same are timestamps of old writers that have a converted type alone. Schemas of sources have the type
# ``INT96`` for all of them, which pyarrow gives to nothing in a Parquet file.
# *Source:* the types and values that DuckDB's ``read_parquet`` shows.


INT96 = pa.timestamp("s")
_INSTANT = pa.timestamp("us", "UTC")


def marked(type_: pa.DataType, leaves: Iterator[pq.ColumnSchema]) -> pa.DataType:
    """Return a column's type with ``INT96`` for each of its leaves that is one."""
    below = [marked(one.type, leaves) for one in children_of_field(type_)]
    if not below and not pa.types.is_struct(type_):
        return INT96 if is_without_zone(next(leaves)) else type_
    return _with_children(type_, below)


def has_int96(type_: pa.DataType) -> bool:
    """Return True if a column of a source has a leaf that is INT96."""
    return bool(type_ == INT96) or any(has_int96(one.type) for one in children_of_field(type_))


def as_instants(type_: pa.DataType) -> pa.DataType:
    """Return a type with an instant for each INT96."""
    if type_ == INT96:
        return _INSTANT
    below = [as_instants(one.type) for one in children_of_field(type_)]
    return _with_children(type_, below) if has_int96(type_) else type_


def as_in_table(type_: pa.DataType, column: Column | None) -> pa.DataType:
    """Return a type with an instant for each INT96 for which a table's column has one."""
    if column is None or not has_int96(type_):
        return type_
    if type_ == INT96:
        facts = column.type.facts
        return _INSTANT if facts.kind is ScalarKind.TIMESTAMP and facts.zoned else type_
    fields = children_of_field(type_)
    columns: Sequence[Column | None] = column.children
    if pa.types.is_struct(type_) or len(columns) != len(fields):
        named = {fold(one.name): one for one in column.children}
        columns = [named.get(fold(one.name)) for one in fields]
    below = [as_in_table(one.type, child) for one, child in zip(fields, columns, strict=True)]
    return _with_children(type_, below)


def _with_children(type_: pa.DataType, types: Sequence[pa.DataType]) -> pa.DataType:
    below = [one.with_type(other) for one, other in zip(children_of_field(type_), types, strict=True)]
    if pa.types.is_struct(type_):
        return pa.struct(below)
    return pa.map_(*below) if pa.types.is_map(type_) else pa.list_(below[0])


def without_zone(spark: t.DataType, arrow: pa.DataType) -> t.DataType:
    """Return the type of Spark's reader with a timestamp without zone for each ``INT96`` of the other."""
    if isinstance(spark, t.TimestampType) and arrow == INT96:
        return t.TimestampNTZType()
    below, given = types_below(spark), [one.type for one in children_of_field(arrow)]
    if isinstance(spark, t.StructType) and pa.types.is_struct(arrow):
        types = {one.name: one.type for one in arrow}
        given = [types.get(name, pa.null()) for name in spark.names]
    if len(given) != len(below):
        return spark
    return with_types(spark, [without_zone(*pair) for pair in zip(below, given, strict=True)])


def clock_in_utc(value: SparkColumn, given: t.DataType, wanted: t.DataType) -> SparkColumn:
    """Return instants as the times without zone that clocks in UTC show, whatever the session's zone is."""
    if given == wanted:
        return value
    if isinstance(given, t.TimestampType):
        start = f.lit("1970-01-01 00:00:00").cast("timestamp_ntz")
        return f.timestamp_add("MICROSECOND", f.unix_micros(value), start)
    pairs = [*zip(types_below(given), types_below(wanted), strict=True)]
    return with_values(value, given, lambda item, place: clock_in_utc(item, *pairs[place]))


log = logger(__name__)

_TASK_BYTES = 128 * 2**20  # of row groups that one task reads
TRUNCATES = "truncateNanoseconds"  # an option of ours
_MERGES = "spark.sql.parquet.mergeSchema"
_SUMMARIES = ("_metadata", "_common_metadata")  # of dask and Hadoop: files without rows


@dataclass(frozen=True, slots=True)
class _File:
    """A file of a dataset: its Arrow schema, its row groups' bytes, and whether Spark cannot read it."""

    path: str
    schema: pa.Schema
    group_bytes: tuple[int, ...]
    is_only_for_arrow: bool
    is_in_old_calendar: bool


@dataclass(frozen=True, slots=True)
class _Source:
    """What tasks need of a dataset: its name in errors, its columns, and whether it ``truncates`` times."""

    name: str
    columns: TableSchema
    truncates: bool

    def cast(self, array: pa.Array, target: pa.DataType) -> pa.Array:
        """Return values of a leaf in the type of their column."""
        if target == VARIANT and pa.types.is_struct(array.type):
            return read_variants(array)
        if (array.type, target) == (STORED_INTERVAL, ARROW_INTERVAL):
            return from_stored(array)
        if self.truncates and pa.types.is_temporal(array.type) and getattr(array.type, "unit", "") == "ns":
            array = array.cast(target, safe=False)
        return cast_leaf(array, target)


def read_parquet(
    spark: SparkSession, path: str, options: Mapping[str, str], name: str, target: TableSchema | None
) -> DataFrame:
    """Return the rows of the Parquet files at a path, which Spark lists; ``name`` is how errors call them.

    Columns of ``target``, an existing table, decide what values become that pyarrow reads, and those in the
    names of folders; without one Spark finds types for the latter.
    """
    if target is None:
        return _read(spark, path, options, name, None)[0]
    with as_texts(spark):
        rows, texts = _read(spark, path, options, name, target)
        wanted = {fold(column.name): column for column in target.columns}
        columns = [
            _folder_values(rows[quoted(one)], one, wanted.get(fold(one)), texts[one], name)
            if one in texts
            else rows[quoted(one)]
            for one in rows.columns
        ]
        return analysed(rows.select(*columns)) if texts else rows


_OF_NUMBERS_AND_DAYS = NUMBERS | {ScalarKind.BOOLEAN, ScalarKind.DATE}


def _folder_values(
    value: SparkColumn, name: str, column: Column | None, texts: Collection[str | None], source: str
) -> SparkColumn:
    """Return the values of folders in the type of a table's column, as added files have them."""
    value = f.when(f.upper(value) != "NULL", value)
    if column is None or not (
        column.type.facts.kind in _OF_NUMBERS_AND_DAYS or column.type.facts.is_local_microseconds
    ):
        return value.alias(name)
    for text in texts:
        try:
            if text is not None:
                hive_value(column.type, text)
        except (ValueError, ArithmeticError):
            raise InvalidInputError(
                f"{source} cannot be read: the folder {name}={text} is not a valid {column.type}, which the "
                "table's column is. Rename the folder, or leave it out."
            ) from None
    cast = value.cast(carrier_type(column))
    return to_insertable(cast, column).alias(name, metadata={TYPE_KEY: str(column.type)})


def _read(
    spark: SparkSession, path: str, options: Mapping[str, str], name: str, target: TableSchema | None
) -> tuple[DataFrame, dict[str, set[str | None]]]:
    """Return the rows of files, and the texts in the names of their folders by column."""
    given = {key.lower(): value.lower() == "true" for key, value in options.items()}
    options = {key: value for key, value in options.items() if key.lower() != TRUNCATES.lower()}
    listed = listing_of(spark, path, options, name)
    folders = [one for one in listed.columns if one not in OF_LISTING]
    paths = sorted(
        one for one in map(own_path, listed.inputFiles()) if one.rsplit("/", 1)[-1] not in _SUMMARIES
    )
    check_links(paths, path, name)
    by_path = [folder_values(one, folders) for one in paths]
    texts = {one: {values[one] for values in by_path} for one in folders}
    found = [_looked_at(one, name) for one in paths[:1]]
    if None not in found:  # else the others would wait for the same store
        found += in_threads(lambda one: _looked_at(one, name), paths[1:])
    files = [one for one in found if one is not None]
    truncates = given.get(TRUNCATES.lower(), False)
    is_for_arrow = truncates or any(one.is_only_for_arrow for one in files) or _differ(files)
    if not files or len(files) < len(paths) or not is_for_arrow:
        try:
            with nanos_refused(spark):
                rows = _by_spark(spark, path, options, _types_of_int96(files, name, target), files)
            return _typed(rows, files), texts
        except Exception as error:
            if not files or len(files) < len(paths) or not is_of_spark(error):
                raise
            log.debug("Spark's reader refuses %s, and pyarrow reads it", path, exc_info=True)
    merges = given.get("mergeschema", spark.conf.get(_MERGES) == "true")
    schema = _merged(files, name, {fold(one) for one in folders}, merges=merges)
    source = _Source(name, _columns(schema, name, files, target, truncates=truncates), truncates)
    documents = list(_documents(files, _values_of_folders(listed, folders)))
    return _by_arrow(spark, documents, source, [listed.schema[one] for one in folders]), texts


def _looked_at(path: str, name: str) -> _File | None:
    """Read a file's footer; None: this process cannot open it, or pyarrow cannot read it."""
    try:
        with open_parquet(open_filesystem(path)) as source:
            parquet = pq.ParquetFile(source)
            refuse_encrypted_columns(parquet.metadata, source, path)
            groups = [parquet.metadata.row_group(number) for number in range(parquet.num_row_groups)]
            is_only_for_arrow = _is_only_for_arrow(parquet)
    except pa.ArrowException:
        return None
    except IndexError:
        raise InvalidInputError(f"{name} cannot be read: {path}: its footer lacks columns.") from None
    except (StorageError, UnsupportedFeatureError, OSError) as error:
        if isinstance(error, OSError) or isinstance(error.__cause__, OSError):  # Spark may have another way
            return None
        raise InvalidInputError(f"{name} cannot be read: {error}") from error
    sizes = tuple(one.total_byte_size for one in groups)
    return _File(path, _schema(parquet), sizes, is_only_for_arrow, is_in_old_calendar(parquet.metadata))


def _differ(files: Sequence[_File]) -> bool:
    """Return True if a column has two types: Spark's reader takes values for ones of the first file's."""
    types: dict[str, tuple[pa.DataType, object]] = {}
    given = ((fold(one.name), (_as_duckdb(one.type), one.metadata)) for file in files for one in file.schema)
    return any(types.setdefault(name, type_) != type_ for name, type_ in given)


def _schema(parquet: pq.ParquetFile) -> pa.Schema:
    """Return a file's columns, with DuckLake's type in the metadata where pyarrow has another one."""
    fields, place = [], 0
    geometries = _geometries(parquet.metadata)
    is_of_duckdb = (parquet.metadata.created_by or "").startswith("DuckDB")
    for one in parquet.schema_arrow:
        count = _leaf_count(one.type)
        leaves = [parquet.metadata.schema.column(place + number) for number in range(count)]
        place += count
        name = "variant" if _is_variant(one, parquet) else None
        if one.name in geometries:
            name = "geometry"
        elif leaves and not children_of_field(one.type):
            name = _NAMED.get(_named_by(leaves[0], is_of_duckdb=is_of_duckdb))
        type_ = VARIANT if name == "variant" else marked(one.type, iter(leaves))
        fields.append(pa.field(one.name, type_, metadata=name and {TYPE_KEY: name}))
    return pa.schema(fields)


def _named_by(leaf: pq.ColumnSchema, *, is_of_duckdb: bool) -> str:
    logical = json.loads(leaf.logical_type.to_json())
    if logical["Type"] == "Time":  # other writers have local times in UTC, too
        return "zoned time" if logical["isAdjustedToUTC"] and is_of_duckdb else ""
    return "INTERVAL" if leaf.converted_type == "INTERVAL" else str(logical["Type"])


# A lake keeps no CRS, and takes edges that are arcs for straight ones, as DuckDB does.
_NAMED = {"zoned time": "timetz", "INTERVAL": "interval", "Geometry": "geometry", "Geography": "geometry"}


def _geometries(metadata: pq.FileMetaData) -> frozenset[str]:
    """Return the columns that GeoParquet's metadata says to be geometries as WKB."""
    with suppress(ValueError, TypeError, AttributeError, KeyError, RecursionError):
        columns = json.loads((metadata.metadata or {})[b"geo"])["columns"]
        leaves = {metadata.schema.column(place).path for place in range(metadata.num_columns)}
        return frozenset(leaves & {name for name, one in columns.items() if one.get("encoding") == "WKB"})
    return frozenset()


def _leaf_count(type_: pa.DataType) -> int:
    below = children_of_field(type_)
    return sum(_leaf_count(one.type) for one in below) if below or pa.types.is_struct(type_) else 1


def _is_variant(field: pa.Field, parquet: pq.ParquetFile) -> bool:
    return bool(pa.types.is_struct(field.type)) and f" {field.name} (Variant(" in str(parquet.schema)


# UNKNOWN: without any value, which Spark takes for integers
_ONLY_FOR_ARROW = {"UNKNOWN", "TIME", "UUID", "FLOAT16", "INTERVAL", "GEOMETRY", "GEOGRAPHY"}


def _is_only_for_arrow(parquet: pq.ParquetFile) -> bool:
    """Return True if Spark's reader refuses a column of the file, or reads it as another type than DuckDB."""
    metadata = parquet.metadata
    leaves = [metadata.schema.column(place) for place in range(len(metadata.schema))]
    return (
        any(undecodable(metadata))
        or any(
            leaf.logical_type.type in _ONLY_FOR_ARROW
            or leaf.converted_type == "INTERVAL"
            or "nanoseconds" in str(leaf.logical_type)
            for leaf in leaves
        )
        or any(
            _is_variant(field, parquet) and field.type.get_field_index("typed_value") >= 0
            for field in parquet.schema_arrow
        )
    )


# --- by Spark


def _types_of_int96(files: Sequence[_File], name: str, target: TableSchema | None) -> dict[str, pa.DataType]:
    """Return the types of the columns that are INT96 in some file, as ``_merged`` finds them."""
    folded = {fold(field.name) for file in files for field in file.schema if has_int96(field.type)}
    if not folded:
        return {}
    parts = [
        replace(file, schema=pa.schema([field for field in file.schema if fold(field.name) in folded]))
        for file in files
    ]
    wanted = _by_folded_name(target)
    merged = {fold(field.name): field.type for field in _merged(parts, name, set(), merges=True)}
    return {folded: as_in_table(type_, wanted.get(folded)) for folded, type_ in merged.items()}


def _by_spark(
    spark: SparkSession,
    path: str,
    options: Mapping[str, str],
    types: Mapping[str, pa.DataType],
    files: Sequence[_File],
) -> DataFrame:
    """Read files with Spark's own reader; an INT96 of ``types`` is a time without zone.

    Spark shifts values of the old calendar only where it reads instants.
    """
    rows = analysed(spark.read.format("parquet").options(**options).load(path))
    wanted = t.StructType(
        [
            t.StructField(
                one.name,
                without_zone(one.dataType, types.get(fold(one.name), pa.null())),
                one.nullable,
                one.metadata,
            )
            for one in rows.schema
        ]
    )
    if wanted == rows.schema:
        return rows
    is_shifted = any(file.is_in_old_calendar for file in files)
    if not is_shifted and _REBASES not in (key.lower() for key in options):
        return analysed(spark.read.format("parquet").options(**options).schema(wanted).load(path))
    return rows.select(
        *(
            clock_in_utc(rows[quoted(one.name)], one.dataType, other.dataType).alias(one.name)
            for one, other in zip(rows.schema, wanted, strict=True)
        )
    )


_REBASES = "int96rebasemode"  # an option of Spark's reader


def _by_folded_name(target: TableSchema | None) -> dict[str, Column]:
    return {} if target is None else {fold(column.name): column for column in target.columns}


def _typed(rows: DataFrame, files: Sequence[_File]) -> DataFrame:
    """Return rows of Spark's reader with DuckLake's types on columns for which Spark has another one."""
    rows = without_bounds(rows)
    fields = {fold(field.name): field for file in files for field in file.schema}
    columns: list[SparkColumn] = []
    for field in rows.schema:
        column = rows[quoted(field.name)]
        given = fields.get(fold(field.name))
        type_ = None if given is None else _type_of(given)
        if type_ is not None and _carrier(type_) == field.dataType.simpleString():
            column = column.alias(field.name, metadata={TYPE_KEY: str(type_)})
        columns.append(column)
    return rows.select(*columns)


def _carrier(type_: DuckLakeType) -> str:
    return carrier_type(new_columns([Field("any", type_)]).columns[0]).simpleString()


def _type_of(field: pa.Field) -> DuckLakeType | None:
    with suppress(InvalidTypeError):
        return _ducklake_type(field, _as_duckdb(field.type))
    return None


def _ducklake_type(field: pa.Field, type_: pa.DataType) -> DuckLakeType:
    if field.metadata:
        return ScalarType(field.metadata[TYPE_KEY.encode()].decode())
    return ducklake_type(type_, field.name)


# --- by pyarrow


def _as_duckdb(type_: pa.DataType, *, truncates: bool = False) -> pa.DataType:
    """Return the Arrow type with the values that DuckDB reads of one in a Parquet file."""

    def below(inner: pa.DataType) -> pa.DataType:
        return _as_duckdb(inner, truncates=truncates)

    if pa.types.is_dictionary(type_):
        return below(type_.value_type)
    if is_list(type_):
        return pa.list_(below(type_.value_type))
    if pa.types.is_map(type_):
        return pa.map_(below(type_.key_type), below(type_.item_type))
    if pa.types.is_struct(type_):
        return pa.struct([(field.name, below(field.type)) for field in type_])
    if pa.types.is_timestamp(type_) and (truncates or type_.unit != "ns" or type_.tz is not None):
        return pa.timestamp("us", None if type_.tz is None else "UTC")
    other = next((of_duckdb for is_one, of_duckdb in _OTHERS_IN_DUCKDB if is_one(type_)), None)
    return type_ if other is None else other


_OTHERS_IN_DUCKDB = ((pa.types.is_duration, pa.int64()), (pa.types.is_time, pa.time64("us")))


def _merged(files: Sequence[_File], name: str, folders: set[str], *, merges: bool) -> pa.Schema:
    """Return the columns of a dataset, those of its first file unless it ``merges``, in the widest types."""
    first = {fold(field.name) for field in files[0].schema}
    schemas = [
        pa.schema(
            [
                field
                for field in file.schema
                if (merges or fold(field.name) in first) and fold(field.name) not in folders
            ]
        )
        for file in files
    ]
    try:
        return _unified(schemas)
    except pa.ArrowException as error:
        raise InvalidInputError(
            f"{name} cannot be read: its {len(files)} files, such as {files[0].path}, have columns whose "
            f"types differ: {str(error).rstrip('.')}. Make files with the same types a source."
        ) from error


def _unified(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """Return the columns of files; an INT96 is an instant where the same column of another file is one."""
    try:
        return pa.unify_schemas(schemas, promote_options="permissive")
    except pa.ArrowException:
        if not any(has_int96(field.type) for schema in schemas for field in schema):
            raise
    instants = [
        pa.schema([field.with_type(as_instants(field.type)) for field in schema]) for schema in schemas
    ]
    return pa.unify_schemas(instants, promote_options="permissive")


def _columns(
    schema: pa.Schema, name: str, files: Sequence[_File], target: TableSchema | None, *, truncates: bool
) -> TableSchema:
    """Return the columns in which the values arrive: those of ``target`` where they hold them."""
    wanted = _by_folded_name(target)
    fields = []
    for one in schema:
        column = wanted.get(fold(one.name))
        type_ = _as_duckdb(as_in_table(one.type, column), truncates=truncates)
        try:
            if column is not None and not type_differences(column, type_, one.name):
                fields.append(Field(one.name, column.type))
            else:
                fields.append(Field(one.name, _ducklake_type(one, type_)))
        except InvalidTypeError as error:
            raise InvalidInputError(f"{name} cannot be read: {files[0].path}: {error}") from error
    return new_columns(fields)


def _values_of_folders(listed: DataFrame, folders: Sequence[str]) -> dict[str, dict[str, str | None]]:
    """Return the values that Spark finds in the names of each file's folders, as texts."""
    if not folders:
        return {}
    texts = [f.col(quoted(one)).cast("string").alias(one) for one in folders]
    rows = listed.select("path", *texts).collect()
    return {without_scheme(row["path"]): dict(zip(folders, row[1:], strict=True)) for row in rows}


def _documents(files: Sequence[_File], folders: Mapping[str, Mapping[str, str | None]]) -> Iterator[Json]:
    """Yield what each task is to read: neighbouring row groups of a file, of so many bytes together."""
    for file in files:
        groups: list[int] = []
        size = 0
        for number, group_bytes in enumerate(file.group_bytes):
            if groups and size + group_bytes > _TASK_BYTES:
                yield _document(file, groups, folders)
                groups, size = [], 0
            groups.append(number)
            size += group_bytes
        if groups:
            yield _document(file, groups, folders)


def _document(file: _File, groups: list[int], folders: Mapping[str, Mapping[str, str | None]]) -> Json:
    return {"path": file.path, "groups": groups, "folders": folders.get(file.path, {})}


def _by_arrow(
    spark: SparkSession, documents: Sequence[Json], source: _Source, folders: Sequence[t.StructField]
) -> DataFrame:
    encoded = encode(source, _Source)
    columns = source.columns.columns

    def rows(document: Json) -> Iterator[pa.RecordBatch]:
        return _rows(document, decode(encoded, _Source))

    carried = [t.StructField(column.name, read_type(column)) for column in columns]
    texts = [t.StructField(field.name, t.StringType()) for field in folders]
    schema = t.StructType([*carried, *texts])
    if documents:
        read = from_tasks(spark, documents, rows, schema, have_keys=False)
    else:
        read = spark.createDataFrame([], schema)
    return read.select(
        *(
            to_insertable(f.col(quoted(one.name)), one).alias(one.name, metadata={TYPE_KEY: str(one.type)})
            for one in columns
        ),
        *(f.col(quoted(one.name)).cast(one.dataType).alias(one.name) for one in folders),
    )


def _rows(document: Json, source: _Source) -> Iterator[pa.RecordBatch]:
    """Yield the rows of some row groups of a file in carriers, then the values of its folders as texts."""
    path, folders = document["path"], document["folders"]
    at = path
    try:
        location = open_filesystem(path)
        with open_parquet(location) as opened:
            parquet = parquet_file(opened, location)
            wanted = {fold(column.name) for column in source.columns.columns}
            names = [one for one in parquet.schema_arrow.names if fold(one) in wanted]
            for group in document["groups"]:
                at = f"{path}, row group {group}"
                for batch in batches(parquet, names, group):
                    rows = in_carriers(_in_columns(batch, source, at), source.columns.columns)
                    for folder, text in folders.items():
                        rows = rows.append_column(
                            folder, pa.repeat(pa.scalar(text, pa.string()), batch.num_rows)
                        )
                    yield from rows.to_batches()
    except InvalidInputError:
        raise
    except (DuckLakeError, OSError, pa.ArrowException) as error:
        raise InvalidInputError(f"{source.name} cannot be read: {at}: {error}") from error


def _in_columns(batch: pa.RecordBatch, source: _Source, at: str) -> pa.Table:
    rows, columns = pa.Table.from_batches([batch]), source.columns.columns
    schema = arrow_schema(source.columns, field_ids=False)
    arrays = []
    for column, field, place in zip(columns, schema, by_name(list(rows.schema), columns), strict=True):
        try:
            arrays.append(
                pa.nulls(rows.num_rows, field.type)
                if place is None
                else reshape(rows.column(place), column, field.type, Reshaping(by_name, nulls, source.cast))
            )
        except pa.ArrowException as error:
            raise InvalidInputError(
                f"{source.name} cannot be read: {at}: column {column.name} has a value that {column.type} "
                f"does not hold: {error}.{_cure(column, rows.schema.field(place).type)}"
            ) from error
    return pa.Table.from_arrays(arrays, schema=schema)


def _cure(column: Column, given: pa.DataType) -> str:
    """Advise how nanoseconds are kept or dropped, if a value may have some."""
    if "[ns" not in str(given):
        return ""
    keeps = (
        " Make the column timestamp_ns to keep nanoseconds, or set"
        if column.type.facts.is_local_microseconds
        else " Set"
    )
    return f"{keeps} the option {TRUNCATES} to true to drop them."
