"""Spec versions of a DuckLake catalog and which of them we read and write."""

from __future__ import annotations

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


CURRENT = SpecVersion.V1_0  # that new catalogs get, and a migration makes
WRITABLE = frozenset({SpecVersion.V1_0})
