"""What to read for a table at a snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_ducklake.errors import UnsupportedFeatureError

if TYPE_CHECKING:
    from airflow_provider_ducklake.spec.files import LiveDataFile
    from airflow_provider_ducklake.spec.snapshots import TableSnapshot


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """The files whose rows are the table, all of them live."""

    table: TableSnapshot
    files: tuple[LiveDataFile, ...]
    columns: tuple[str, ...]


def plan_scan(table: TableSnapshot, columns: tuple[str, ...] | None = None) -> ScanPlan:
    """Return the plan for reading a table whose snapshot was taken with its files; None means every column.

    Raises:
        ColumnNotFoundError: no such column.
        UnsupportedFeatureError: the live rows are not simply those of the data files.
    """
    assert table.files is not None
    chosen = table.schema.names if columns is None else columns
    names = tuple(table.schema.find(name, str(table.name)).name for name in chosen)
    if table.has_inlined_data:
        raise _later(table, "rows or deletes inlined in the catalog")
    for file in table.files:
        if file.delete_file is not None:
            raise _later(table, f"deletes (file {file.path})")
        if file.partial_max is not None:
            raise _later(table, f"a merged file of several snapshots ({file.path})")
        if file.mapping_id is not None:
            raise _later(table, f"a file with a name mapping ({file.path})")
    return ScanPlan(table, table.files, names)


def _later(table: TableSnapshot, what: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        f"{table.name} at snapshot {table.snapshot.id} has {what}, which this release cannot read yet; it "
        "comes with the next reading release. Read the table with DuckDB until then."
    )
