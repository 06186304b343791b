"""Which snapshots an expiry removes, and what no remaining snapshot shows.

*Source:* the reference's ``ducklake_expire_snapshots`` (docs/sources.md, maintenance).
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.errors import InvalidInputError, SnapshotTaggedError
from airflow_provider_ducklake.lake.planning.upkeep.retention import NO_FLOOR, check_age, cut_off

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from datetime import datetime, timedelta

    from airflow_provider_ducklake.lake.spec.snapshots import Snapshot


@dataclass(frozen=True, slots=True)
class ExpiryRule:
    """What a user asked for; times are aware. At least one of the first three is given, not the first two.

    Never expired: the newest ``keep_last``, the ids in ``keep``, those whose author or message matches a
    pattern (``release-*``), what is younger than ``min_retention``, and what is tagged.
    """

    older_than: datetime | timedelta | None = None
    versions: Collection[int] | None = None
    keep_last: int | None = None
    keep: Collection[int] = ()
    keep_author: str | None = None
    keep_message: str | None = None
    min_retention: timedelta = NO_FLOOR

    def __post_init__(self) -> None:
        if self.older_than is not None and self.versions is not None:
            raise InvalidInputError("Give older_than or versions, not both.")
        if self.older_than is None and self.versions is None and self.keep_last is None:
            raise InvalidInputError(
                "Give older_than, versions or keep_last, or set the lake's option expire_older_than."
            )
        if self.keep_last is not None and self.keep_last < 1:
            raise InvalidInputError(
                f"keep_last={self.keep_last}: the newest snapshot is always kept; give 1 or more."
            )
        check_age("older_than", self.older_than)
        check_age("min_retention", self.min_retention)

    @property
    def has_patterns(self) -> bool:
        """Whether authors and messages have to be looked at."""
        return self.keep_author is not None or self.keep_message is not None

    def pins(self, author: str | None, message: str | None) -> bool:
        """Whether a snapshot is kept for what it says of itself."""
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
    """Return what of the chosen snapshots expires; ``tags`` are the names of tags by snapshot.

    Raises:
        SnapshotTaggedError: the rule names a tagged one by its id.
    """
    tagged = tuple(one for one in chosen if one.id in tags)
    if tagged and rule.versions is not None:
        raise SnapshotTaggedError([f"{one.id} ({', '.join(map(repr, tags[one.id]))})" for one in tagged])
    return ExpiryPlan(tuple(one for one in chosen if one.id not in tags), tagged)


def plan_expiry(
    snapshots: Sequence[Snapshot], rule: ExpiryRule, now: datetime, pinned: Collection[int] = ()
) -> tuple[Snapshot, ...]:
    """Return the snapshots to expire, oldest first; never the newest (highest id), none that is ``pinned``.

    Strictly older than the time, as the reference compares; ids that do not exist are ignored. ``keep_last``
    protects the newest N; alone it expires all others.

    Raises:
        InvalidInputError: what was asked for lies in the future, or is younger than the rule's floor.
    """
    by_id = sorted(snapshots, key=lambda one: one.id)
    protected = {*rule.keep, *pinned}
    candidates = [one for one in by_id[: -max(rule.keep_last or 1, 1)] if one.id not in protected]
    oldest_kept = now - rule.min_retention
    if rule.versions is not None:
        wanted = set(rule.versions)
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
    """Whether one of the kept snapshots, ascending, sees what lived from ``begin`` up to before ``end``."""
    place = bisect_left(kept, begin)
    return end is None or (place < len(kept) and kept[place] < end)
