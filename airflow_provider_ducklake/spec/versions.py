"""Spec versions of a DuckLake catalog: which of them we read and write, and what they ask of a writer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from airflow_provider_ducklake.errors import UnsupportedVersionError


class SpecVersion(Enum):
    """A version as stored under ``version`` in ``ducklake_metadata``; ordered."""

    V0_1 = "0.1"
    V0_2 = "0.2"
    V0_3 = "0.3"
    V0_4 = "0.4"
    V1_0 = "1.0"

    @property
    def _rank(self) -> int:
        return list(SpecVersion).index(self)

    def __lt__(self, other: SpecVersion) -> bool:
        return self._rank < other._rank

    def __le__(self, other: SpecVersion) -> bool:
        return self._rank <= other._rank

    @classmethod
    def parse(cls, text: str) -> SpecVersion:
        """Return the version spelled ``text``.

        Raises:
            UnsupportedVersionError: for any other text, newer versions included.
        """
        try:
            return cls(text)
        except ValueError:
            raise UnsupportedVersionError(text, [version.value for version in cls]) from None


@dataclass(frozen=True, slots=True)
class WriteVersion:
    """What a spec version asks of a writer, besides the columns of the catalog's fixed tables.

    Those are in ``catalog/database/tables.py``, each with the version that brought it.
    ``inlined_columns``: names of the system columns of tables for inlined rows: of the row id, of the
    snapshot that inserted the row, and of the one that ended it. ``reserved``: other names, folded, that no
    column of a table with inlined rows may have.
    """

    inlined_columns: tuple[str, str, str]
    reserved: frozenset[str]


_WRITERS = {
    SpecVersion.V1_0: WriteVersion(
        ("row_id", "begin_snapshot", "end_snapshot"),
        frozenset({"_ducklake_internal_row_id", "_ducklake_internal_snapshot_id"}),
    ),
}
CURRENT = SpecVersion.V1_0  # that new catalogs get, and a migration makes
WRITABLE = frozenset(_WRITERS)


def write_version(version: SpecVersion) -> WriteVersion:
    """Return how a version is written; one that is only read has the names of its successor."""
    return next(writer for one, writer in _WRITERS.items() if version <= one)
