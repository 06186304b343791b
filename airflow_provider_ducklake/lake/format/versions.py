"""Spec versions of a DuckLake catalog: which of them we read and write, and what they ask of a writer."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum, StrEnum

from ..errors import InvalidInputError, InvalidNameError, UnsupportedFeatureError, UnsupportedVersionError
from .names.identifiers import INTERNAL_PREFIX, check_name, fold


class SpecVersion(Enum):
    """A version as stored under ``version`` in ``ducklake_metadata``; ordered."""

    V0_1 = "0.1"
    V0_2 = "0.2"
    V0_3 = "0.3"
    V0_4 = "0.4"
    V1_0 = "1.0"
    V1_1_DEV1 = "1.1-dev1"  # of development builds, and of half a migration: only ever migrated
    V1_1 = "1.1"

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
            raise refused(text, WRITABLE) from None


class Feature(StrEnum):
    """A feature that not every version we write has, in the reference's words."""

    NESTED_SCHEMAS = "nested schemas"
    VIEW_COLUMN_COMMENTS = "COMMENT ON COLUMN for views"
    NULL_TYPE = "the NULL type"
    TIMESTAMPTZ_NS = "the type timestamptz_ns"
    EPOCH_YEAR = "the epoch_year partition transform"
    EPOCH_MONTH = "the epoch_month partition transform"
    EPOCH_DAY = "the epoch_day partition transform"
    EPOCH_HOUR = "the epoch_hour partition transform"
    NESTED_MACRO_TYPES = "nested macro parameter types"
    MACRO_EXPRESSIONS = "macro parameter defaults that are not scalar constants"
    DELETION_VECTOR_CONTAINERS = "deletion vectors of several snapshots in one file"


@dataclass(frozen=True, slots=True)
class WriteVersion:
    """A spec version's rules for a writer, besides the columns of the catalog's fixed tables.

    Those are in ``catalog/database/tables.py``, each with the version that brought it.
    ``inlined_columns``: names of the system columns of tables for inlined rows: of the row id, of the
    snapshot that inserted the row, and of the one that ended it. ``reserved``: other names, folded, that no
    column of a table with inlined rows may have. ``unfinished``: what a catalog says while it is migrated to
    the version, if that takes several transactions: no client of another version works on it then.
    ``reserved_prefix``: how no column's name may begin, folded. ``features``: what a lake of the version may
    hold. ``expires_options``: whether options go with the last snapshot that has their table or schema.
    ``key_bytes``: how long the keys of encrypted files are that its clients write. ``inlines_variants``:
    whether tables for inlined rows have columns of variants; inside other columns they never do.
    """

    version: SpecVersion
    inlined_columns: tuple[str, str, str]
    reserved: frozenset[str]
    unfinished: SpecVersion
    reserved_prefix: str = INTERNAL_PREFIX
    features: frozenset[Feature] = frozenset()
    expires_options: bool = False
    key_bytes: int = 16
    inlines_variants: bool = False

    def check_column_name(self, name: str, *, inlining: bool) -> str:
        """Return ``name`` if a column can have it; tables that allow ``inlining`` have fewer names left.

        Raises:
            InvalidNameError: it is empty, cannot be stored, or is reserved by the format.
        """
        check_name(name, "column")
        if fold(name).startswith(self.reserved_prefix):
            raise InvalidNameError(
                f"Column {name!r}: names that start with {self.reserved_prefix} are reserved by the format."
            )
        if inlining and fold(name) in self.inlined_columns:
            raise InvalidNameError(
                f"Column {name!r}: DuckLake needs this name for inlined data. Choose another name, or set "
                "the table's option data_inlining_row_limit to 0."
            )
        return name

    def check(self, feature: Feature, where: str = "") -> None:
        """Refuse a feature that the version lacks; ``where`` begins the message.

        Raises:
            UnsupportedFeatureError: names the feature, the version and the first version that has it.
        """
        if feature not in self.features:
            raise UnsupportedFeatureError(f"{where}{self.lacking(feature)}")

    def lacking(self, feature: Feature) -> str:
        """Return the error for a feature that the version lacks, with the way to a version that has it."""
        first = next(one.version for one in _WRITERS.values() if feature in one.features)
        return (
            f"DuckLake {self.version.value} does not support {feature}. Nothing was changed. DuckLake "
            f"{first.value} does: migrate the lake with DuckLakeMigrateOperator(to_version={first.value!r}) "
            f"or Lake.migrate(to_version={first.value!r}), as soon as all its clients can open it: "
            f"{opened_by(first)}."
        )


_INTERNAL = frozenset({"_ducklake_internal_row_id", "_ducklake_internal_snapshot_id"})
_WRITERS = {
    one.version: one
    for one in (
        WriteVersion(
            SpecVersion.V1_0, ("row_id", "begin_snapshot", "end_snapshot"), _INTERNAL, SpecVersion.V0_4
        ),
        WriteVersion(
            SpecVersion.V1_1,
            ("_ducklake_row_id", "_ducklake_begin_snapshot", "_ducklake_end_snapshot"),
            _INTERNAL,
            SpecVersion.V1_1_DEV1,
            "_ducklake_",
            frozenset(Feature),
            expires_options=True,
            key_bytes=32,
            inlines_variants=True,
        ),
    )
}
DEFAULT = SpecVersion.V1_0  # that new catalogs get, and a migration makes: every DuckDB since 1.5 opens it
NEWEST = max(_WRITERS)
_OLDEST = min(SpecVersion)
WRITABLE = frozenset(_WRITERS)

_OPENED_BY = {
    SpecVersion.V1_0: "DuckDB 1.5 and newer open it",
    SpecVersion.V1_1: "DuckDB 2.0 and newer open it, and no DuckDB 1.x",
    SpecVersion.V1_1_DEV1: "no released client works on it",
}


_FIRST_DUCKDB = {SpecVersion.V1_0: (1, 5), SpecVersion.V1_1: (2, 0)}
_SPELLED = re.compile(r"\d{1,9}\.\d{1,9}(-dev\d{1,9})?")
_DUCKDB = re.compile(r"DuckDB (?:version )?v?(\d{1,9})\.(\d{1,9})\.")


def is_locked_out(client: str, version: SpecVersion) -> bool:
    """Return True if a client, as it names itself, certainly cannot open a catalog of a version.

    >>> is_locked_out("DuckDB version v1.5.5 (build d8cdaa33fd)", SpecVersion.V1_1)
    True
    """
    found, first = _DUCKDB.match(client), _FIRST_DUCKDB.get(version)
    return found is not None and first is not None and (int(found[1]), int(found[2])) < first


def opened_by(version: SpecVersion) -> str:
    """List the DuckDB versions that open a catalog of a version, as a clause."""
    return _OPENED_BY.get(version, "newer DuckDB versions open it once it is migrated")


def refused(found: str, supported: Collection[SpecVersion], catalog: str = "") -> UnsupportedVersionError:
    """Return the error of an operation for a catalog of another version, with what to do."""
    return UnsupportedVersionError(
        found, [one.value for one in sorted(supported)], _what_to_do(found), catalog
    )


def _what_to_do(found: str) -> str:
    version = next((one for one in SpecVersion if one.value == found), None)
    if version is SpecVersion.V1_1_DEV1:
        return (
            "A development build of DuckDB 2.0 made it, or a migration to 1.1 has not finished: "
            f"{opened_by(version)}. Complete it with DuckLakeMigrateOperator(to_version='1.1') or "
            "Lake.connect(..., to_migrate=True).migrate(to_version='1.1')."
        )
    if version is not None:
        return (
            f"It is an older catalog: {opened_by(version)}. Migrate it to 1.0 with DuckLakeMigrateOperator "
            "or Lake.connect(..., to_migrate=True).migrate()."
        )
    if not _SPELLED.fullmatch(found):
        return (
            "This is not a DuckLake version. Correct the row of ducklake_metadata with the key 'version', or "
            "restore the catalog from a backup."
        )
    if "dev" in found:
        return (
            "It is a version of a development build: only the DuckDB that made the catalog opens it. Migrate "
            "it with that one."
        )
    if _numbers(found) < _numbers(_OLDEST.value):
        return f"{_OLDEST.value} was the first version. Restore the catalog from a backup."
    return (
        f"A newer client made it: this release supports DuckLake up to {NEWEST.value}. Open it with that "
        "client, or install a newer release of this provider."
    )


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def check_newest(version: SpecVersion, newest: SpecVersion | None, catalog: str) -> None:
    """Refuse a lake that is newer than the newest version to work on; None: there is no such limit.

    Raises:
        UnsupportedVersionError: it is newer.
    """
    if newest is None or version <= newest:
        return
    allowed = [one.value for one in sorted(WRITABLE) if one <= newest]
    raise UnsupportedVersionError(
        version.value,
        allowed,
        f"It was opened with max_version {newest.value!r}; {opened_by(version)}. Give max_version "
        f"{write_version(version).version.value!r} if all clients of the lake open it, or use another lake.",
        catalog,
    )


def check_target(target: SpecVersion, newest: SpecVersion | None) -> None:
    """Refuse to migrate a lake beyond the newest version to work on; None: there is no such limit.

    Raises:
        InvalidInputError: the target is newer.
    """
    if newest is not None and target > newest:
        raise InvalidInputError(
            f"to_version: {target.value!r} is newer than {newest.value!r}, the newest version that this lake "
            f"was opened for. At DuckLake {target.value}, {opened_by(target)}. Nothing was changed. Give "
            f"max_version {target.value!r} as soon as all clients of the lake open it."
        )


def writable_version(text: str, argument: str = "version") -> SpecVersion:
    """Return a version that new lakes, and migrated ones, may have.

    Raises:
        InvalidInputError: it is none of them.
    """
    found = next((one for one in WRITABLE if one.value == text), None)
    if found is None:
        known = " or ".join(repr(one.value) for one in sorted(WRITABLE))
        raise InvalidInputError(
            f"{argument}: {text!r} is not a DuckLake version that can be written. Give {known}."
        )
    return found


def write_version(version: SpecVersion) -> WriteVersion:
    """Return the rules for writing a version; one that is only read has the names of its successor."""
    return next(writer for one, writer in _WRITERS.items() if version <= one)
