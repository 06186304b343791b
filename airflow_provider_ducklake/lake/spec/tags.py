"""Tags: names of snapshots that keep them from expiring.

Ours, not the format's: its table ``ducklake_tag`` holds comments.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.errors import InvalidInputError, InvalidNameError
from airflow_provider_ducklake.lake.spec.names.identifiers import is_storable

if TYPE_CHECKING:
    from datetime import datetime

    from airflow_provider_ducklake.lake.spec.ids import SnapshotId

TAG_PREFIX = "tag:"  # of a tag where a snapshot is named
LONGEST_NAME = 255  # characters: of four bytes each they fit the index of every catalog database
_UNPRINTED = {"Cc", "Zl", "Zp"}  # categories of Unicode: control characters, ends of lines and paragraphs


@dataclass(frozen=True, slots=True)
class Tag:
    """A name of a snapshot; times are aware UTC.

    ``is_lost``: the snapshot has expired all the same, by a client that does not know tags.
    """

    name: str
    snapshot_id: SnapshotId
    snapshot_time: datetime
    tagged_at: datetime
    author: str | None = None
    message: str | None = None
    is_lost: bool = False


@dataclass(frozen=True, slots=True)
class TagResult:
    """What became of a tag: the snapshot that it names, or named before it was removed.

    ``moved_from`` is the snapshot that it named before; ``is_earlier``: nothing was changed, as it was so
    already or an earlier try of the same task had done it.
    """

    name: str
    snapshot_id: SnapshotId
    moved_from: SnapshotId | None = None
    is_earlier: bool = False


def check_tag_name(name: object) -> str:
    """Return a name that a tag can have.

    Raises:
        InvalidNameError: says why it cannot.
    """
    if not isinstance(name, str):
        raise InvalidNameError(f"{name!r} cannot name a tag: give a string.")
    if problem := _problem(name):
        raise InvalidNameError(f"{name[:LONGEST_NAME]!r} cannot name a tag: {problem}.")
    return name


def _problem(name: str) -> str | None:
    if not name:
        return "it is empty"
    if len(name) > LONGEST_NAME:
        return f"it has {len(name)} characters, and at most {LONGEST_NAME} are allowed"
    if not is_storable(name) or any(unicodedata.category(one) in _UNPRINTED for one in name):
        return "it holds a control character, an end of a line or an unpaired surrogate"
    if name != name.strip():
        return "it begins or ends with a space"
    if name.startswith(TAG_PREFIX):
        return f"leave out {TAG_PREFIX!r}, which stands before it only where a snapshot is named"
    return None


def is_tag(at: object) -> bool:
    """Whether what names a snapshot names a tag.

    >>> is_tag("tag:q3-close"), is_tag(7)
    (True, False)
    """
    return isinstance(at, str) and at.startswith(TAG_PREFIX)


def tag_name(at: str) -> str:
    """Return the name of the tag by which a snapshot is named.

    >>> tag_name("tag:q3-close")
    'q3-close'

    Raises:
        InvalidInputError: it is no such string.
        InvalidNameError: no tag has such a name.
    """
    if not is_tag(at):
        raise InvalidInputError(
            f"at={at!r}: give a snapshot id, an aware datetime, or a tag such as 'tag:q3-close'."
        )
    return check_tag_name(at.removeprefix(TAG_PREFIX))
