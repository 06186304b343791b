"""Row ids that several live rows of a table have, whether files say them or the catalog does.

Ids are held a window at a time, each 8 bytes and as many to sort them, so that no table is too large.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_ducklake.errors import StorageError, UnsupportedFeatureError
from airflow_provider_ducklake.storage.parallel import in_threads
from airflow_provider_ducklake.storage.table_reader import ROW_ID, visible_rows
from airflow_provider_ducklake.storage.verify_files import stores_row_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from airflow_provider_ducklake.planning.scan import ScanPlan
    from airflow_provider_ducklake.spec.files import LiveDataFile
    from airflow_provider_ducklake.storage.filesystem import Location

    Locate = Callable[[str], Location]

_WINDOW = 2**24


@dataclass(frozen=True, slots=True)
class SharedRowIds:
    """``count`` row ids of a table that more than one live row has; ``row_id`` is the first of them.

    ``file_ids`` are data files with such rows; ``in_catalog``: rows in the catalog are among them.
    """

    row_id: int
    count: int
    file_ids: tuple[int, ...]
    in_catalog: bool


@dataclass(frozen=True, slots=True)
class _Source:
    """Rows with ids from ``first`` to ``last``: of a file, or (None) of the catalog."""

    file: LiveDataFile | None
    first: int
    last: int
    stores: bool


def shared_row_ids(
    plan: ScanPlan, in_catalog: Sequence[int], locate: Locate, *, below: int
) -> list[SharedRowIds]:
    """Return which ids below a number are those of several live rows: of the plan's files or the catalog.

    Files that number their rows are compared with those that store ids, not with each other. A file that
    cannot be read is passed over.
    """
    reader = _Reader(replace(plan, columns=(), where=None), locate, below)
    held = pc.unique(pa.array((one for one in in_catalog if one < below), pa.int64()))
    sources = [one for one in in_threads(reader.source, plan.files) if one is not None]
    if len(held):
        sources.append(_Source(None, *_span(held), stores=True))
    found: list[SharedRowIds] = []
    for start in _windows(sources):
        end = start + _WINDOW
        within = [one for one in sources if one.first < end and one.last >= start]
        if any(one.stores for one in within):
            found += _in_window(within, reader, held, start, end)
    return found


def _windows(sources: Iterable[_Source]) -> list[int]:
    """Return the starts of the windows with ids that are stored."""
    starts: set[int] = set()
    for one in sources:
        if one.stores:
            starts.update(range(one.first // _WINDOW * _WINDOW, one.last + 1, _WINDOW))
    return sorted(starts)


def _in_window(
    sources: Sequence[_Source], reader: _Reader, held: pa.Array, start: int, end: int
) -> Iterator[SharedRowIds]:
    def ids(source: _Source) -> pa.Array:
        found = held if source.file is None else reader.ids(source.file)
        return found.filter(pc.and_(pc.greater_equal(found, start), pc.less(found, end)))

    parts = in_threads(ids, sources)
    shared = _doubled(pa.concat_arrays(parts))
    if not len(shared):
        return
    has = [pc.any(pc.is_in(part, value_set=shared)).as_py() for part in parts]
    files = [one.file for one, is_among in zip(sources, has, strict=True) if is_among]
    yield SharedRowIds(
        shared[0].as_py(), len(shared), tuple(one.id for one in files if one is not None), None in files
    )


def _doubled(ids: pa.Array) -> pa.Array:
    """Return the values that come more than once, ascending."""
    rising = ids.take(pc.sort_indices(ids))
    return pc.unique(rising.slice(1).filter(pc.equal(rising.slice(1), rising.slice(0, len(rising) - 1))))


def _span(ids: pa.Array) -> tuple[int, int]:
    ends = pc.min_max(ids)
    return ends["min"].as_py(), ends["max"].as_py()


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads which ids below a number the live rows of a file have."""

    plan: ScanPlan
    locate: Locate
    below: int

    def source(self, file: LiveDataFile) -> _Source | None:
        """Return a file's ids, as far as they are known without counting; None: it has none to compare."""
        try:
            if stores_row_ids(self.locate(file.path)):
                ids = self.ids(file)
                return _Source(file, *_span(ids), stores=True) if len(ids) else None
        except (StorageError, UnsupportedFeatureError):
            return None  # a finding of its own
        if file.row_id_start is None or not file.record_count:
            return None
        return _Source(file, file.row_id_start, file.row_id_start + file.record_count - 1, stores=False)

    def ids(self, file: LiveDataFile) -> pa.Array:
        """Return the ids of the live rows of a file, in its order; none where it cannot be read."""
        try:
            ids = visible_rows(self.plan, file, self.locate, numbered=True)[ROW_ID.name].combine_chunks()
        except (StorageError, UnsupportedFeatureError):
            return pa.array([], pa.int64())
        return ids.filter(pc.less(ids, self.below))
