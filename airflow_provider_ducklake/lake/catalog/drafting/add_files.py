"""Prepare existing Parquet files to become data files of a table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...errors import InvalidInputError, InvalidPartitionError, UnsupportedFeatureError
from ...format.files import DataFile, FirstDeletes
from ...format.log_lines import logger
from ...format.names.paths import CatalogPath
from ...format.partitioning import TransformKind, hive_values
from ...planning.writing.source_table import SourceFile, SourceTable, matched, other_defaults
from ...storage.deletes.deletes import write_first_deletes
from ...storage.files.listing import expand
from ...storage.files.parallel import in_threads
from ...storage.foreign.files import AddTarget, data_file
from ...storage.parquet.foreign_files import inspect_file, partition_values
from ..snapshot.read_files import data_files, registered

if TYPE_CHECKING:
    from ...transaction.changes import Positions
    from ...transaction.table_draft import TableDraft
    from ..open_lake import OpenLake


log = logger(__name__)


@dataclass(frozen=True, slots=True)
class FileRules:
    """The allowed differences between a file and its table."""

    hive_partitioning: bool = False
    allow_missing: bool = False
    ignore_extra_columns: bool = False


def foreign_files(
    lake: OpenLake, draft: TableDraft, paths: Sequence[str], rules: FileRules, added: Collection[str]
) -> list[DataFile]:
    """Inspect the files that a table is to get; those without rows are left out.

    ``added`` are files of the same transaction.
    """
    if isinstance(paths, str):
        raise InvalidInputError(f"paths is the string {paths!r}. Give a list of paths.")
    refuse_encrypted(lake, draft)
    found = expand(paths, lake.locate)
    refuse_taken(lake, found, added)
    files = (_inspected(lake, draft, path, rules) for path in found)
    return [file for file in files if file is not None]


def refuse_encrypted(lake: OpenLake, draft: TableDraft) -> None:
    """Refuse a lake whose files all have a key."""
    if lake.encrypted:
        raise UnsupportedFeatureError(
            f"{draft.name}: the lake is encrypted, and DuckLake cannot register files of others there, which "
            "have no key of the lake's. Insert their rows instead."
        )


def refuse_taken(lake: OpenLake, paths: Sequence[str], added: Collection[str]) -> None:
    """Refuse files that the lake would not read, or has; ``added`` are those of the same transaction."""
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


# Prepare the data files of a table of another format, and their deletes, for a table of the lake.


def source_files(
    lake: OpenLake, draft: TableDraft, source: SourceTable, added: Collection[str]
) -> list[tuple[DataFile, Positions | None]]:
    """Return the files as the table is to have them, and their deleted rows; those without live rows go.

    ``added`` are files of the same transaction. Nothing is written.
    """
    columns = matched(source, draft.columns, str(draft.name))
    target = AddTarget(
        str(draft.name), draft.columns, columns, draft.partition_by, other_defaults(columns, draft.columns)
    )
    live = [one for one in source.files if _has_live_rows(one)]
    refuse_encrypted(lake, draft)
    refuse_taken(lake, [one.path for one in source.files], added)
    made = in_threads(lambda one: data_file(source, target, one, lake.locate(one.path)), live)
    pairs = [(file, one.deletes) for file, one in zip(made, live, strict=True) if file.record_count]
    kept = [(file, gone) for file, gone in pairs if gone is None or gone.count < file.record_count]
    scattered = _scattered(lake, draft, [file for file, _ in kept])
    return [
        (replace(file, partition_values=()) if file.partition_values in scattered else file, gone)
        for file, gone in kept
    ]


def _scattered(
    lake: OpenLake, draft: TableDraft, files: Sequence[DataFile]
) -> frozenset[tuple[str | None, ...]]:
    """Return the partitions whose files lie in several folders; of such DuckDB compacts none.

    DuckDB's compaction fails for the whole table where files of one partition do not have the folders of the
    first of them in their paths. Files without partition values it compacts, wherever they lie.
    """
    folders: dict[tuple[str | None, ...], set[str]] = defaultdict(set)
    for path, values in (*_own_files(lake, draft), *((one.path, one.partition_values) for one in files)):
        if values:
            folders[values].add(path.rpartition("/")[0])
    added = {one.partition_values for one in files}
    scattered = frozenset(values for values in added if len(folders[values]) > 1)
    if not scattered:
        return scattered
    example = ", ".join(sorted(folders[min(scattered, key=repr)])[:2])
    if any(key.transform.kind is TransformKind.BUCKET for key in draft.partition_by):
        raise InvalidPartitionError(
            f"{len(scattered)} partitions of {draft.name} would have files in several folders ({example}), "
            "of which DuckDB's compaction fails. Insert the rows instead, or add the table under another "
            "name after a compaction there has left one folder for each partition."
        )
    log.warning(
        "%d partitions of %s have files in several folders (%s): they are added without partition values, "
        "since DuckDB's compaction fails otherwise",
        *(len(scattered), draft.name, example),
    )
    return scattered


def _own_files(lake: OpenLake, draft: TableDraft) -> Iterator[tuple[str, tuple[str | None, ...]]]:
    """Yield the paths of the files that the table has in its current partitioning, with their values."""
    if draft.base is None or draft.base.partition_spec is None or not draft.partition_by:
        return
    with lake.reading() as connection:
        current = lake.catalog.tables["data_file"].c.partition_id == draft.base.partition_spec.id
        for file in data_files(connection, lake.catalog, draft.base, only=current, stats_of=()):
            yield file.path, file.partition_values


def _has_live_rows(file: SourceFile) -> bool:
    """Return True if the metadata says of a file that it has rows, or does not say how many."""
    gone = file.deletes.count if file.deletes is not None else 0
    return file.record_count is None or file.record_count > gone


def with_deletes(
    lake: OpenLake,
    draft: TableDraft,
    files: Sequence[tuple[DataFile, Positions | None]],
    new_path: Callable[[str], str],
) -> list[DataFile]:
    """Write the delete files of data files into the table's directory, and return the files with them."""
    if any(gone is not None and gone.count for _, gone in files):
        lake.check_writable(draft.root)
    ending = "puffin" if draft.options.flag("write_deletion_vectors") else "parquet"
    named = [
        (file, gone, new_path(f"-delete.{ending}") if gone and gone.count else "") for file, gone in files
    ]
    return in_threads(lambda one: _with_deletes(lake, *one, ending), named)


def _with_deletes(lake: OpenLake, file: DataFile, gone: Positions | None, path: str, ending: str) -> DataFile:
    if gone is None or not path:
        return file
    written = write_first_deletes(lake.locate(path), file.path, gone, as_vectors=ending == "puffin")
    deletes = FirstDeletes(path, gone.count, written.file_size_bytes, written.footer_size, ending)
    return replace(file, deletes=deletes)
