"""Two lakes that should be one: ours, and the reference's with the same history."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

import pyarrow.parquet as pq

from airflow_provider_ducklake.lake.catalog.drafting.transaction import LakeTransaction
from airflow_provider_ducklake.lake.catalog.lake import Lake
from tests.differential.drawn_lake import ID
from tests.reference.catalog_dump import Dump, catalog_differences, dump_catalog
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import DuckLakeConnection, open_lake

if TYPE_CHECKING:
    from tests.differential.drawn_changes import Change

# Columns in which a correct catalog of ours may differ from the reference's: where, and why.
IGNORED = {
    "ducklake_table_column_stats.contains_nan": "of inlined floats the reference keeps none",
    "ducklake_column.nulls_allowed of fields": "the reference writes 0 for a field that was altered",
    "ducklake_column.default_value_type of nested columns and fields": (
        "it says nothing there; the reference writes '' or 'literal' after an ALTER"
    ),
    "ducklake_file_column_stats.value_count and null_count below lists and maps": (
        "Parquet writers count NULL and empty ones each in their own way"
    ),
    "ducklake_table_column_stats.min_value and max_value of blobs": (
        "the reference writes another text for inlined rows than for files"
    ),
    "ducklake_table_column_stats.min_value and max_value of widened columns": (
        "of some types the reference forgets the bounds; they still hold"
    ),
    "ducklake_table_column_stats.min_value and max_value below lists and maps": (
        "the reference leaves out a file of which it counted no value there, and then misses its rows"
    ),
    "ducklake_table_column_stats: missing rows of nested columns": (
        "whether inlined rows hold a value there we do not look up, and then claim nothing"
    ),
    "statistics of variants": (
        "the reference counts NULL as a value, and says what lies at the paths that it shreds; in our "
        "files variants lie in one piece"
    ),
    "ducklake_snapshot_changes.changes_made: order of creations": "the reference lists them by a hash",
}
_EVERYWHERE = {"ducklake_table_column_stats.contains_nan"}
_BOUNDS, _COUNTS = ("min_value", "max_value"), ("value_count", "null_count")


class OurLake:
    """A lake of ours, open; ``tx`` is its transaction while a change is carried out."""

    tx: LakeTransaction

    def __init__(self, catalog: CatalogDatabase, reference: DuckLakeConnection, version: str = "1.0") -> None:
        """Create the lake; ``reference`` is asked for the rows that changes add."""
        self.ours, self.reference = catalog, reference
        self.lake = Lake.create(catalog.sqlalchemy_url, catalog.data_path, version=version)

    def commit(self, changes: "Sequence[Change]") -> None:
        """Make one transaction of changes."""
        if changes[0].is_option:
            changes[0].ours(self)
            return
        with self.lake.transaction() as self.tx:
            for change in changes:
                change.ours(self)

    def delete(self, table: tuple[str, str], ids: frozenset[int]) -> None:
        """Delete rows, found by the values of their ``id``."""
        snapshot = self.lake.table_snapshot(table, with_files=True)
        found: dict[int, list[int]] = defaultdict(list)
        for file in snapshot.files or ():
            values = pq.ParquetFile(file.path).read(columns=[ID])[ID].to_pylist()
            for position, value in enumerate(values):
                if value in ids:
                    found[file.id].append(position)
        row_ids = [row["row_id"] for row in self._inlined(snapshot.table_id) if row[ID] in ids]
        self.tx.delete_at(table, found, row_ids)

    def _inlined(self, table_id: int) -> list[dict[str, object]]:
        prefix = f"ducklake_inlined_data_{table_id}_"
        dump = dump_catalog(self.ours)
        rows = [row for name, rows in dump.items() if name.startswith(prefix) for row in rows]
        rows = [{name.removeprefix("_ducklake_"): value for name, value in row.items()} for row in rows]
        return [row for row in rows if row["end_snapshot"] is None]


class Twin(OurLake):
    """Our lake and the reference's."""

    def __init__(self, ours: CatalogDatabase, theirs: CatalogDatabase) -> None:
        self.theirs = theirs
        with ExitStack() as stack:
            reference = stack.enter_context(open_lake(theirs))
            reference.sql("SET arrow_lossless_conversion = true")
            super().__init__(ours, reference)
            stack.enter_context(self.lake)
            self._open = stack.pop_all()
        self._start()

    def _start(self) -> None:
        """Keep rows in the order in which they are inserted, which we do; the reference sorts by the keys."""
        self.lake.set_option("sort_on_insert", value=False)
        self.reference.sql("CALL lake.set_option('sort_on_insert', false)")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def carry_out(self, changes: "Sequence[Change]") -> None:
        """Do the same in both lakes; ours first, since it may look up rows that both still have."""
        self.commit(changes)
        texts = [text for change in changes for text in change.sql]
        for text in ["BEGIN", *texts, "COMMIT"] if len(texts) > 1 else texts:
            self.reference.sql(text)

    def differences(self) -> list[str]:
        """Return how the two catalogs differ, apart from what is ignored."""
        dumps = [dump_catalog(one) for one in (self.ours, self.theirs)]
        ours, theirs = (_comparable(dump, _miscounted(dumps[1])) for dump in dumps)
        return list(catalog_differences(ours, _without_forgotten(theirs, ours), ignore=_EVERYWHERE))


def _hidden(
    rows: list[dict[str, Any]], columns: set[tuple[int, int]], ignored: Iterable[str]
) -> list[dict[str, Any]]:
    values = dict.fromkeys(ignored, "<ignored>")
    return [{**row, **values} if (row["table_id"], row["column_id"]) in columns else row for row in rows]


def _in_lists(columns: list[dict[str, Any]]) -> set[tuple[int, int]]:
    """Return the columns below a list or map."""
    by_id = {(row["table_id"], row["column_id"]): row for row in columns}

    def is_below(row: dict[str, Any]) -> bool:
        parent = by_id.get((row["table_id"], row["parent_column"]))
        return parent is not None and (parent["column_type"] in {"list", "map"} or is_below(parent))

    return {key for key, row in by_id.items() if is_below(row)}


def _without_forgotten(theirs: Dump, ours: Dump) -> Dump:
    """Leave out the statistics of nested columns that ours does not have."""
    table = "ducklake_table_column_stats"
    nested = {
        (row["table_id"], row["column_id"]) for row in theirs["ducklake_column"] if row["parent_column"]
    }
    forgotten = nested - {(row["table_id"], row["column_id"]) for row in ours[table]}
    kept = [row for row in theirs[table] if (row["table_id"], row["column_id"]) not in forgotten]
    return {**theirs, table: kept}


def _widened(columns: list[dict[str, Any]]) -> set[tuple[int, int]]:
    """Return the columns that have had several types."""
    types = {
        (row["table_id"], row["column_id"], row["column_type"])
        for row in columns
        if row["begin_snapshot"] != row["end_snapshot"]
    }
    return {key for key, count in Counter(one[:2] for one in types).items() if count > 1}


def _miscounted(theirs: Dump) -> set[tuple[int, int]]:
    """Return the columns of which a file has bounds and, as the reference counts, not a value."""
    return {
        (row["table_id"], row["column_id"])
        for row in theirs["ducklake_file_column_stats"]
        if not row["value_count"] and row["min_value"] is not None  # NULL: more nulls than places
    }


def _comparable(dump: Dump, miscounted: set[tuple[int, int]]) -> Dump:
    columns = dump["ducklake_column"]
    blobs, variants = (
        {(row["table_id"], row["column_id"]) for row in columns if row["column_type"] == type_}
        for type_ in ("blob", "variant")
    )

    def shown(row: dict[str, Any]) -> dict[str, Any]:
        is_field = row["parent_column"] is not None
        is_nested = is_field or row["column_type"] in ("struct", "map", "list")
        ignored = [*(["nulls_allowed"] if is_field else ()), *(["default_value_type"] if is_nested else ())]
        return {**row, **dict.fromkeys(ignored, "<ignored>")}

    def in_order(row: dict[str, Any]) -> dict[str, Any]:
        return {**row, "changes_made": _with_creations_in_order(row["changes_made"])}

    return {
        **dump,
        "ducklake_file_column_stats": _hidden(
            _hidden(dump["ducklake_file_column_stats"], _in_lists(columns), _COUNTS),
            variants,
            (*_COUNTS, "extra_stats"),
        ),
        "ducklake_file_variant_stats": [],
        "ducklake_table_column_stats": _hidden(
            _hidden(dump["ducklake_table_column_stats"], blobs | _widened(columns) | miscounted, _BOUNDS),
            variants,
            ("contains_null", "extra_stats"),
        ),
        "ducklake_column": [shown(row) for row in dump["ducklake_column"]],
        "ducklake_snapshot_changes": [in_order(row) for row in dump["ducklake_snapshot_changes"]],
    }


_ENTRY = re.compile(r'(?:[^",]|"(?:[^"]|"")*")+')


def _with_creations_in_order(changes_made: str | None) -> str:
    """Sort what was created or renamed by one transaction, which the reference lists by a hash."""
    entries = _ENTRY.findall(changes_made or "")
    created = iter(sorted(one for one in entries if one.startswith(_CREATED)))
    return ",".join(next(created) if one.startswith(_CREATED) else one for one in entries)


_CREATED = ("created_table:", "created_view:")
