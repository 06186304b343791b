"""What may be removed: orphaned files below a data path, and snapshots with what only they show.

Also the evidence of another lake's files there, and how old something must be. Paths are keys as
``format.names.paths.path_key`` makes them: when in doubt two files are taken for one, which then stays.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from ...errors import InvalidInputError, SnapshotTaggedError
from ...format.limits import NO_FLOOR
from ...format.names.paths import JOB_ID, path_key
from ...format.types.texts import require_offset

if TYPE_CHECKING:
    from ...format.snapshots import Snapshot


MARK = ".airflow_ducklake_lake-"
_OWN_ID = re.compile(rf"(?:^|/)\.?ducklake-({JOB_ID})(?=[/.-])", re.IGNORECASE)
_JOB_DIRECTORY = re.compile(rf"(?:^|/)ducklake-{JOB_ID}/", re.IGNORECASE)
_LEFT_BEHIND = re.compile(
    r".*\.(?:parquet|puffin)|\.[0-9a-f]{16}\.tmp|\.ducklake-write-check-[0-9a-f]{16}|\.ducklake-.*\.crc",
    re.IGNORECASE | re.DOTALL,
)
_MANY = 10
_SHOWN = 5


def has_write_id(name: str) -> bool:
    """Return True if a path below a directory has the id of the write that made it, and so is one file's."""
    return _OWN_ID.search(name) is not None


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file below the data path; ``name`` is its path from there, ``changed_at`` None: unknown."""

    path: str
    name: str
    size: int
    changed_at: datetime | None

    @property
    def ids(self) -> frozenset[str]:
        """The ids of writes in its path: of the job whose directory or prefix it has, or of the file."""
        return frozenset(one.lower() for one in _OWN_ID.findall(self.name))

    @property
    def is_ours_by_kind(self) -> bool:
        """Return True if lakes write such files: Parquet, Puffin, and all in the directory of a job."""
        last = self.name.rpartition("/")[2]
        return bool(_LEFT_BEHIND.fullmatch(last) or _JOB_DIRECTORY.search(self.name))

    @property
    def is_mark(self) -> bool:
        """Return True if a lake has left it to show that it keeps its files there."""
        return self.name.rpartition("/")[2].startswith(MARK)


@dataclass(slots=True)
class LakeFiles:
    """What a lake names: ``keys`` of files, ``names`` of files that it reaches by paths of another kind.

    ``directories`` are the keys of its tables' directories, ``open_jobs`` the ids of its jobs that may still
    commit, and ``jobs`` those of all, with the key of the directory of the table that each writes.
    """

    keys: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    directories: set[str] = field(default_factory=set)
    open_jobs: frozenset[str] = frozenset()
    jobs: dict[str, str] = field(default_factory=dict)

    def add(self, path: str, data_path_key: str, *, is_full: bool = True) -> None:
        """Add a file that the lake names."""
        key = path_key(path)
        self.keys.add(key)
        if not is_full or not key.startswith(data_path_key):
            self.names.add(key.rpartition("/")[2])


@dataclass(frozen=True, slots=True)
class Orphans:
    """Files that no row names, and how many others are left alone: too young, or of jobs under way.

    ``other_marks`` are the marks of other lakes.
    """

    files: tuple[StoredFile, ...]
    young: int
    protected: int
    named: int
    other_marks: tuple[str, ...] = ()


def find_orphans(
    files: Iterable[StoredFile], lake: LakeFiles, limit: datetime, own_marks: Collection[str] = ()
) -> Orphans:
    """Return the files that the lake does not name, last changed before ``limit``.

    No more of the files is kept: there may be millions.
    """
    found, marks, counts = [], [], Counter[str]()
    for one in files:
        if one.is_mark and one.name not in own_marks:
            marks.append(one.path)
        if not one.is_ours_by_kind:
            continue
        key = path_key(one.path)
        if key in lake.keys or key.rpartition("/")[2] in lake.names:
            counts["named"] += 1
        elif one.ids & lake.open_jobs:
            counts["protected"] += 1
        elif one.changed_at is None or one.changed_at >= limit:
            counts["young"] += 1
        else:
            found.append(one)
    return Orphans(tuple(found), counts["young"], counts["protected"], counts["named"], tuple(marks))


def foreign_evidence(orphans: Orphans, lake: LakeFiles) -> str | None:
    """Explain why some of the files may be another lake's; None: there is no sign of it."""
    strange = [one for one in orphans.files if one.ids and not _is_of_job(one, lake)]
    unknown = Counter(
        one.path.rpartition("/")[0] + "/" for one in strange if not _in_known_directory(one, lake)
    )
    if unknown:
        shown = ", ".join(f"{directory} ({count})" for directory, count in unknown.most_common(_SHOWN))
        return (
            f"lakes write files as those in {shown}, directories of no table of this lake. Look at them; if "
            "they are left over from tables dropped long ago, give sole_owner=True."
        )
    strange = [one for one in strange if not one.ids & lake.jobs.keys()]
    writes = {min(one.ids) for one in strange}
    if len(writes) >= max(_MANY, orphans.named + 1):
        return (
            f"{len(strange)} files of {len(writes)} writes are unknown to it, more than the "
            f"{orphans.named} that it lists. Check that the catalog is not an old copy, and that no other "
            "lake has this data path; then give sole_owner=True."
        )
    return None


def _in_known_directory(file: StoredFile, lake: LakeFiles) -> bool:
    return any(one in lake.directories for one in _table_directories(file))


def _is_of_job(file: StoredFile, lake: LakeFiles) -> bool:
    """Return True if a file lies where the job in its name writes: elsewhere it is a copy.

    The job may write other tables of the same schema, and new ones.
    """
    written = {lake.jobs[one] for one in file.ids if one in lake.jobs}
    schemas = {one.rpartition("/")[0] for one in written}
    return any(one in written or one.rpartition("/")[0] in schemas for one in _table_directories(file))


def _table_directories(file: StoredFile) -> Iterator[str]:
    """Yield the keys of the directories that may be that of a file's table.

    Between that and the file are the directory of a job, or those of partitions. In others another lake may
    lie: a table's directory can be the data path, as those from 0.1 are.
    """
    job = _JOB_DIRECTORY.search(file.name)
    folder = file.name[: job.start()] if job else file.name.rpartition("/")[0]
    data_path, last = file.path.removesuffix(file.name), "="
    while "=" in last:
        yield path_key(data_path + folder)
        folder, _, last = folder.rpartition("/")


# How old something must be before it may be removed.
#
# A floor keeps a slip of the pen from deleting what others still use. Clocks disagree: a time that is only
# a moment ahead of ours counts as now.


_LONGEST = timedelta(days=730_000)  # so that now minus an age is a time
_TOLERANCE = timedelta(minutes=5)  # between two clocks


def check_age(name: str, age: datetime | timedelta | None) -> None:
    """Refuse an age that can be none."""
    if isinstance(age, datetime):
        require_offset(age)
    if isinstance(age, timedelta) and age < timedelta(0):
        raise InvalidInputError(f"{name}={age} is in the future; give a positive interval.")
    if isinstance(age, timedelta) and age > _LONGEST:
        raise InvalidInputError(f"{name}={age} is longer than 2,000 years; give a shorter interval.")


def cut_off(older_than: datetime | timedelta, now: datetime, floor: timedelta) -> datetime:
    """Return the moment before which things may go; never later than the floor allows."""
    check_age("older_than", older_than)
    check_age("min_retention", floor)
    limit = now - older_than if isinstance(older_than, timedelta) else older_than
    slack = timedelta(0) if isinstance(older_than, timedelta) else _TOLERANCE
    if limit > now + slack:
        raise InvalidInputError(
            f"older_than={older_than} is in the future: the catalog's clock shows {now:%Y-%m-%d %H:%M:%S} "
            "UTC."
        )
    if limit > now - floor + slack:
        raise InvalidInputError(
            f"older_than={older_than} would take what is younger than min_retention={floor}. Give an older "
            "one, or a shorter min_retention if you mean it."
        )
    return min(limit, now - floor)


# Which snapshots an expiry removes, and what no remaining snapshot shows.
#
# *Source:* the reference's ``ducklake_expire_snapshots`` (docs/sources.md, maintenance).


@dataclass(frozen=True, slots=True)
class ExpiryRule:
    """The user's arguments; times are aware. At least one of the first three is given, not the first two.

    Never expired: the newest ``keep_last``, the ids in ``keep``, those whose author or message matches a
    pattern (``release-*``), what is younger than ``min_retention``, and what is tagged.
    """

    older_than: datetime | timedelta | None = None
    snapshots: Collection[int] | None = None
    keep_last: int | None = None
    keep: Collection[int] = ()
    keep_author: str | None = None
    keep_message: str | None = None
    min_retention: timedelta = NO_FLOOR

    def __post_init__(self) -> None:
        if self.older_than is not None and self.snapshots is not None:
            raise InvalidInputError("Give older_than or snapshots, not both.")
        given: dict[str, object] = {"keep": self.keep, "snapshots": self.snapshots or ()}
        for name, ids in given.items():
            if not isinstance(ids, Collection) or not all(isinstance(one, int) for one in ids):
                raise InvalidInputError(f"{name} is {ids!r:.100}. Give ids of snapshots, whole numbers.")
        if self.older_than is None and self.snapshots is None and self.keep_last is None:
            raise InvalidInputError(
                "Give older_than, snapshots or keep_last, or set the lake's option expire_older_than."
            )
        if self.keep_last is not None and self.keep_last < 1:
            raise InvalidInputError(
                f"keep_last={self.keep_last}: the newest snapshot is always kept; give 1 or more."
            )
        check_age("older_than", self.older_than)
        check_age("min_retention", self.min_retention)

    @property
    def has_patterns(self) -> bool:
        """Return True if authors and messages are needed."""
        return self.keep_author is not None or self.keep_message is not None

    def pins(self, author: str | None, message: str | None) -> bool:
        """Return True if a snapshot is kept for its author or message."""
        return _matches(author, self.keep_author) or _matches(message, self.keep_message)


def _matches(text: str | None, pattern: str | None) -> bool:
    return text is not None and pattern is not None and fnmatchcase(text, pattern)


@dataclass(frozen=True, slots=True)
class ExpiryPlan:
    """The snapshots to expire, oldest first, and those that would but for their tags."""

    expired: tuple[Snapshot, ...]
    kept_by_tags: tuple[Snapshot, ...] = ()


def without_tagged(
    chosen: Sequence[Snapshot], rule: ExpiryRule, tags: Mapping[int, Sequence[str]]
) -> ExpiryPlan:
    """Leave tagged snapshots out of the chosen ones; ``tags`` are the names of tags by snapshot."""
    tagged = tuple(one for one in chosen if one.id in tags)
    if tagged and rule.snapshots is not None:
        raise SnapshotTaggedError([f"{one.id} ({', '.join(map(repr, tags[one.id]))})" for one in tagged])
    return ExpiryPlan(tuple(one for one in chosen if one.id not in tags), tagged)


def plan_expiry(
    snapshots: Sequence[Snapshot], rule: ExpiryRule, now: datetime, pinned: Collection[int] = ()
) -> tuple[Snapshot, ...]:
    """Return the snapshots to expire, oldest first; never the newest (highest id), none that is ``pinned``.

    Strictly older than the time, as the reference compares; ids that do not exist are ignored. ``keep_last``
    protects the newest N; alone it expires all others.
    """
    by_id = sorted(snapshots, key=lambda one: one.id)
    protected = {*rule.keep, *pinned}
    candidates = [one for one in by_id[: -max(rule.keep_last or 1, 1)] if one.id not in protected]
    oldest_kept = now - rule.min_retention
    if rule.snapshots is not None:
        wanted = set(rule.snapshots)
        chosen = tuple(one for one in candidates if one.id in wanted)
        _refuse_young(chosen, rule, oldest_kept)
        return chosen
    if rule.older_than is not None:
        oldest_kept = cut_off(rule.older_than, now, rule.min_retention)
    elif not rule.min_retention:
        return tuple(candidates)
    return tuple(one for one in candidates if one.time < oldest_kept)


def _refuse_young(chosen: Collection[Snapshot], rule: ExpiryRule, oldest_kept: datetime) -> None:
    young = [int(one.id) for one in chosen if one.time > oldest_kept] if rule.min_retention else []
    if young:
        raise InvalidInputError(
            f"Snapshots {young} are younger than min_retention={rule.min_retention}. Leave them out, or "
            "give a shorter min_retention if you really want to expire them."
        )


@dataclass(frozen=True, slots=True)
class Hole:
    """A run of expired ids: all between two kept ones, ``after`` (None: there is none) and ``before``.

    What began after the one, and ended at the other or before, no kept snapshot sees.
    """

    after: int | None
    before: int


def holes(kept: Sequence[int], gone: Collection[int]) -> Iterator[Hole]:
    """Yield the runs that expired snapshots lie in, ascending.

    >>> list(holes([3, 6, 7], [0, 1, 2, 4, 5]))
    [Hole(after=None, before=3), Hole(after=3, before=6)]

    ``kept`` is ascending; its last is newer than all that are gone.
    """
    places = dict.fromkeys(bisect_left(kept, one) for one in sorted(gone))
    for place in places:
        yield Hole(kept[place - 1] if place else None, kept[place])


def is_reachable(begin: int, end: int | None, kept: Sequence[int]) -> bool:
    """Return True if one of the kept snapshots, ascending, lies from ``begin`` up to before ``end``."""
    place = bisect_left(kept, begin)
    return end is None or (place < len(kept) and kept[place] < end)
