"""Prepare existing Parquet files to become data files of a table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.catalog.snapshot.registered_files import registered
from airflow_provider_ducklake.lake.errors import InvalidInputError, UnsupportedFeatureError
from airflow_provider_ducklake.lake.spec.log_lines import logger
from airflow_provider_ducklake.lake.spec.names.paths import CatalogPath
from airflow_provider_ducklake.lake.spec.partitioning import hive_values
from airflow_provider_ducklake.lake.storage.files.listing import expand
from airflow_provider_ducklake.lake.storage.parquet.foreign_files import inspect_file, partition_values

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from airflow_provider_ducklake.lake.catalog.open_lake import OpenLake
    from airflow_provider_ducklake.lake.spec.files import DataFile
    from airflow_provider_ducklake.lake.transaction.table_draft import TableDraft

log = logger(__name__)


@dataclass(frozen=True, slots=True)
class FileRules:
    """In what a file may differ from its table."""

    hive_partitioning: bool = False
    allow_missing: bool = False
    ignore_extra_columns: bool = False


def foreign_files(
    lake: OpenLake, draft: TableDraft, paths: Sequence[str], rules: FileRules, added: Collection[str]
) -> list[DataFile]:
    """Return what the table is to have of the files; those without rows are left out.

    ``added`` are files of the same transaction.

    Raises:
        SchemaMismatchError, InvalidPartitionError: a file does not fit the table.
        InvalidInputError: a path is relative or means no file, or the lake has the file already.
        UnsupportedFeatureError: the lake is encrypted.
        StorageError: a file cannot be read.
    """
    if isinstance(paths, str):
        raise InvalidInputError(f"paths is the string {paths!r}. Give a list of paths.")
    refuse_encrypted(lake, draft)
    found = expand(paths, lake.locate)
    refuse_taken(lake, found, added)
    files = (_inspected(lake, draft, path, rules) for path in found)
    return [file for file in files if file is not None]


def refuse_encrypted(lake: OpenLake, draft: TableDraft) -> None:
    """Refuse a lake whose files all have a key.

    Raises:
        UnsupportedFeatureError: it is encrypted.
    """
    if lake.encrypted:
        raise UnsupportedFeatureError(
            f"{draft.name}: the lake is encrypted, and DuckLake cannot register files of others there, which "
            "have no key of the lake's. Insert their rows instead."
        )


def refuse_taken(lake: OpenLake, paths: Sequence[str], added: Collection[str]) -> None:
    """Refuse files that the lake would not read, or has; ``added`` are those of the same transaction.

    Raises:
        InvalidInputError: names the file.
    """
    for path in paths:
        if (problem := CatalogPath(path, is_relative=False).problem_below(lake.data_path)) is not None:
            raise InvalidInputError(f"{path} {problem}, so this lake would not read it.")
    with lake.reading() as connection:
        known = registered(connection, lake.catalog, paths)
    _refuse_known(paths, added, known)


def _refuse_known(paths: Sequence[str], added: Collection[str], registered: Collection[str]) -> None:
    seen = set(added)
    for path in paths:
        if path in seen:
            raise InvalidInputError(
                f"{path} is given twice; its rows would be in the table twice. Give it once."
            )
        if path in registered:
            raise InvalidInputError(
                f"{path} is or was a data file of this lake, and the lake may delete it. To add its rows "
                "again, add a copy of the file."
            )
        seen.add(path)


def _inspected(lake: OpenLake, draft: TableDraft, path: str, rules: FileRules) -> DataFile | None:
    file = inspect_file(
        lake.locate(path),
        draft.columns,
        str(draft.name),
        hive_values=hive_values(path) if rules.hive_partitioning else {},
        allow_missing=rules.allow_missing,
        ignore_extra_columns=rules.ignore_extra_columns,
    )
    if not file.record_count:
        log.info("%s has no rows and was skipped", path)
        return None
    values = partition_values(file, draft.partition_by, draft.columns, str(draft.name))
    return replace(file, partition_values=values)
