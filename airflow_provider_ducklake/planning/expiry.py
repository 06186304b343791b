"""Which snapshots an expiry removes.

*Source:* the reference's ``ducklake_expire_snapshots`` (dossier §9.3).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from airflow_provider_ducklake.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from airflow_provider_ducklake.spec.snapshots import Snapshot


@dataclass(frozen=True, slots=True)
class ExpiryRule:
    """What a user asked for; times are aware. At least one of the three is given, ``versions`` only alone."""

    older_than: datetime | timedelta | None = None
    versions: Collection[int] | None = None
    keep_last: int | None = None

    def __post_init__(self) -> None:
        if self.older_than is not None and self.versions is not None:
            raise InvalidInputError("Give older_than or versions, not both.")
        if self.older_than is None and self.versions is None and self.keep_last is None:
            raise InvalidInputError("Say what to expire: older_than, versions or keep_last.")
        if self.keep_last is not None and self.keep_last < 1:
            raise InvalidInputError(
                f"keep_last={self.keep_last}: the newest snapshot is always kept; give 1 or more."
            )
        if isinstance(self.older_than, datetime) and self.older_than.tzinfo is None:
            raise InvalidInputError(f"older_than={self.older_than} has no time zone; give an aware time.")
        if isinstance(self.older_than, timedelta) and self.older_than < timedelta(0):
            raise InvalidInputError(
                f"older_than={self.older_than} lies in the future; give a positive interval."
            )


def plan_expiry(snapshots: Sequence[Snapshot], rule: ExpiryRule, now: datetime) -> tuple[Snapshot, ...]:
    """Return the snapshots to expire, oldest first; never the newest (highest id).

    Strictly older than the time, as the reference compares; ids that do not exist are ignored. ``keep_last``
    protects the newest N; alone it expires all others.
    """
    by_id = sorted(snapshots, key=lambda one: one.id)
    candidates = by_id[: -max(rule.keep_last or 1, 1)]
    if rule.versions is not None:
        wanted = set(rule.versions)
        return tuple(one for one in candidates if one.id in wanted)
    if rule.older_than is None:
        return tuple(candidates)
    limit = now - rule.older_than if isinstance(rule.older_than, timedelta) else rule.older_than
    return tuple(one for one in candidates if one.time < limit)
