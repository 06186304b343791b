"""Which files below a data path are orphans, and the evidence of another lake's files there.

Paths are keys as ``spec.paths.path_key`` makes them: when in doubt two files are taken for one, which then
stays.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.spec.names.paths import JOB_ID, path_key

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from datetime import datetime

MARK = ".airflow_ducklake_lake-"
_OWN_ID = re.compile(rf"(?:^|/)\.?ducklake-({JOB_ID})(?=[/.-])", re.IGNORECASE)
_JOB_DIRECTORY = re.compile(rf"(?:^|/)ducklake-{JOB_ID}/", re.IGNORECASE)
_LEFT_BEHIND = re.compile(
    r".*\.(?:parquet|puffin)|\.[0-9a-f]{16}\.tmp|\.ducklake-write-check-[0-9a-f]{16}|\.ducklake-.*\.crc",
    re.IGNORECASE | re.DOTALL,
)
_MANY = 10
_SHOWN = 5


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
        """Whether lakes write such files: Parquet and Puffin, and whatever lies in the directory of a job."""
        last = self.name.rpartition("/")[2]
        return bool(_LEFT_BEHIND.fullmatch(last) or _JOB_DIRECTORY.search(self.name))

    @property
    def is_mark(self) -> bool:
        """Whether a lake has left it to show that it keeps its files there."""
        return self.name.rpartition("/")[2].startswith(MARK)


@dataclass(slots=True)
class LakeFiles:
    """What a lake names: ``keys`` of files, ``names`` of files that it reaches by paths of another kind.

    ``directories`` are the keys of its tables' directories, ``open_jobs`` and ``jobs`` the ids of its jobs:
    those that may still commit, and all.
    """

    keys: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    directories: set[str] = field(default_factory=set)
    open_jobs: frozenset[str] = frozenset()
    jobs: frozenset[str] = frozenset()

    def add(self, path: str, data_path_key: str, *, is_full: bool = True) -> None:
        """Note a file that the lake names."""
        key = path_key(path)
        self.keys.add(key)
        if not is_full or not key.startswith(data_path_key):
            self.names.add(key.rpartition("/")[2])


@dataclass(frozen=True, slots=True)
class Orphans:
    """Files that nobody names, and how many others are left alone: too young, or of jobs under way.

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
    """Return what speaks for it that some of the files are another lake's; None: nothing does."""
    strange = [one for one in orphans.files if one.ids and not one.ids & lake.jobs]
    unknown = Counter(
        one.path.rpartition("/")[0] + "/" for one in strange if not _in_known_directory(one, lake)
    )
    if unknown:
        shown = ", ".join(f"{directory} ({count})" for directory, count in unknown.most_common(_SHOWN))
        return (
            f"lakes write files as those in {shown}, directories of no table of this lake. Look at them; if "
            "they are left over from tables dropped long ago, give sole_owner=True."
        )
    writes = {min(one.ids) for one in strange}
    if len(writes) >= max(_MANY, orphans.named + 1):
        return (
            f"{len(strange)} files of {len(writes)} writes are unknown to it, more than the "
            f"{orphans.named} that it lists. Check that the catalog is not an old copy, and that no other "
            "lake has this data path; then give sole_owner=True."
        )
    return None


def _in_known_directory(file: StoredFile, lake: LakeFiles) -> bool:
    above = path_key(file.path)
    while "/" in above:
        above = above.rpartition("/")[0]
        if above in lake.directories:
            return True
    return False
