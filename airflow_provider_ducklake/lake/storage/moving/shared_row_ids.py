"""Find row ids that several live rows of a table share, whether stored in files or in the catalog.

Each file that stores ids is read once. Where its ids lie between those of other files, it is read again with
them, a window of ids at a time: memory is that of the ids of a window, or of one large file.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_ducklake.lake.errors import StorageError, UnsupportedFeatureError
from airflow_provider_ducklake.lake.storage.files.parallel import in_threads
from airflow_provider_ducklake.lake.storage.moving.verify_files import stores_row_ids
from airflow_provider_ducklake.lake.storage.rows.table_reader import ROW_ID, visible_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from airflow_provider_ducklake.lake.planning.reading.scan import ScanPlan
    from airflow_provider_ducklake.lake.spec.files import LiveDataFile
    from airflow_provider_ducklake.lake.storage.files.filesystem import Location

    Locate = Callable[[str], Location]

_WINDOW = 2**24
_FEW = 1_000_000  # rows of a file of which several are read at a time

Result = TypeVar("Result")


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
    """Rows of a file, or (None) of the catalog, with ids in ``windows``; ``is_mixed``: one comes twice."""

    file: LiveDataFile | None
    windows: Sequence[int]
    is_mixed: bool = False


def shared_row_ids(
    plan: ScanPlan, in_catalog: Sequence[int], locate: Locate, *, below: int
) -> list[SharedRowIds]:
    """Return which ids below a number are those of several live rows: of the plan's files or the catalog.

    Files that number their rows are compared with those that store ids, not with each other. A file that
    cannot be read is passed over.
    """
    reader = _Reader(replace(plan, columns=(), where=None), locate, below)
    held = pc.unique(pa.array((one for one in in_catalog if one < below), pa.int64()))
    found: list[SharedRowIds] = []
    for window, sources in sorted(_by_window(plan.files, reader, held).items()):
        if len(sources) > 1 or sources[0].is_mixed:
            found += _in_window(sources, reader, held, window * _WINDOW)
    return found


def _by_window(files: Sequence[LiveDataFile], reader: _Reader, held: pa.Array) -> dict[int, list[_Source]]:
    """Return the rows that have ids in a window, for each window in which ids are stored."""
    stores = dict(zip((file.id for file in files), _of_each(reader.stores_ids, files), strict=True))
    storing = _of_each(reader.source, [file for file in files if stores[file.id]])
    found: dict[int, list[_Source]] = {}
    for source in (*storing, _Source(None, _windows(held))):
        for window in source.windows:
            found.setdefault(window, []).append(source)
    windows = sorted(found)
    for file in files:
        if stores[file.id] is False:
            for window in _numbered(file, windows):
                found[window].append(_Source(file, ()))
    return found


def _numbered(file: LiveDataFile, windows: Sequence[int]) -> Sequence[int]:
    """Return those of the windows, which ascend, in which a file numbers its rows."""
    if file.row_id_start is None:
        return ()
    first, end = file.row_id_start // _WINDOW, (file.row_id_start + file.record_count - 1) // _WINDOW
    return windows[bisect_left(windows, first) : bisect_right(windows, end)]


def _of_each(work: Callable[[LiveDataFile], Result], files: Sequence[LiveDataFile]) -> list[Result]:
    """Return what ``work`` makes of the files, in their order; large ones are worked on one at a time."""
    results: list[Result] = []
    for is_small, found in groupby(files, key=lambda file: file.record_count <= _FEW):
        alike = list(found)
        results += in_threads(work, alike) if is_small else map(work, alike)
    return results


def _windows(ids: pa.Array) -> Sequence[int]:
    windows: list[int] = pc.unique(pc.divide(ids, _WINDOW)).to_pylist()
    return windows


def _in_window(
    sources: Sequence[_Source], reader: _Reader, held: pa.Array, start: int
) -> Iterator[SharedRowIds]:
    def within(ids: pa.Array) -> pa.Array:
        return ids.filter(pc.and_(pc.greater_equal(ids, start), pc.less(ids, start + _WINDOW)))

    files = [one.file for one in sources if one.file is not None]
    parts = [*_of_each(lambda file: within(reader.ids(file)), files), within(held)]
    shared = _doubled(pa.concat_arrays(parts))
    if not len(shared):
        return
    *in_files, in_catalog = (bool(pc.any(pc.is_in(part, value_set=shared)).as_py()) for part in parts)
    file_ids = tuple(file.id for file, is_among in zip(files, in_files, strict=True) if is_among)
    yield SharedRowIds(shared[0].as_py(), len(shared), file_ids, in_catalog)


def _doubled(ids: pa.Array) -> pa.Array:
    """Return the values that come more than once, ascending."""
    if len(ids) < 2:  # noqa: PLR2004 - a pair
        return ids.slice(0, 0)
    rising = ids.take(pc.sort_indices(ids))
    return pc.unique(rising.slice(1).filter(pc.equal(rising.slice(1), rising.slice(0, len(rising) - 1))))


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads which ids below a number the live rows of a file have."""

    plan: ScanPlan
    locate: Locate
    below: int

    def stores_ids(self, file: LiveDataFile) -> bool | None:
        """Whether a file says itself which ids its rows have; None: it cannot be read."""
        try:
            return stores_row_ids(self.locate(file.path).with_key(file.encryption_key))
        except (StorageError, UnsupportedFeatureError):
            return None  # a finding of its own

    def source(self, file: LiveDataFile) -> _Source:
        """Return where the ids lie that a file stores."""
        ids = self.ids(file)
        return _Source(file, _windows(ids), is_mixed=bool(len(_doubled(ids))))

    def ids(self, file: LiveDataFile) -> pa.Array:
        """Return the ids of the live rows of a file, in its order; none where it cannot be read."""
        try:
            ids = visible_rows(self.plan, file, self.locate, numbered=True)[ROW_ID.name].combine_chunks()
        except (StorageError, UnsupportedFeatureError):
            return pa.array([], pa.int64())
        return ids.filter(pc.less(ids, self.below))
