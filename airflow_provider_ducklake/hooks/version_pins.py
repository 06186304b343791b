"""The DuckLake versions that a connection allows: of a new lake, of an existing one, and of a migration.

*Source:* docs/sources.md, DuckLake 1.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ducklake.hooks.connection_form import DUCKLAKE_VERSION, MAX_VERSION
from airflow_provider_ducklake.lake.spec.versions import DEFAULT, SpecVersion, opened_by

if TYPE_CHECKING:
    from airflow_provider_ducklake.hooks.connection_settings import ConnectionSettings

_MIGRATE = "DuckLakeMigrateOperator(to_version={!r})"


def version_of_new_lake(settings: ConnectionSettings) -> SpecVersion:
    """Return the version that a new lake gets."""
    return settings.ducklake_version or DEFAULT


def newest_version(settings: ConnectionSettings) -> SpecVersion | None:
    """Return the newest version that a lake may have, and be migrated to; None: any that can be written."""
    return settings.ducklake_version or settings.max_version


def check_lake(settings: ConnectionSettings, version: SpecVersion) -> None:
    """Refuse an existing lake that is not of the connection's versions.

    Raises:
        InvalidOptionError: names the field, both versions, who opens the lake, and what to do.
    """
    who = f"The lake has DuckLake {version.value}: {opened_by(version)}."
    pinned, newest = settings.ducklake_version, settings.max_version
    if pinned is not None and version > pinned:
        raise settings.invalid(
            DUCKLAKE_VERSION,
            f"DuckLake catalog version is {version.value!r}, which is newer than the requested version "
            f"{pinned.value!r}. Cannot downgrade a DuckLake catalog. {who} Write {version.value!r}, or clear "
            "the field.",
        )
    if pinned is not None and version < pinned:
        raise settings.invalid(
            DUCKLAKE_VERSION,
            f"DuckLake catalog version mismatch: catalog version is {version.value}, but the connection "
            f"requires version {pinned.value}. {who} Migrate it with {_MIGRATE.format(pinned.value)}, or "
            "clear the field.",
        )
    if newest is not None and version > newest:
        raise settings.invalid(
            MAX_VERSION,
            f"The connection allows DuckLake {newest.value} at most. {who} Write {version.value!r} if all "
            "clients of the lake open it, or use another lake.",
        )


def check_migration(settings: ConnectionSettings, to_version: str) -> None:
    """Refuse a migration to a version that the connection does not allow.

    Raises:
        InvalidOptionError: names the field, both versions, who opens the lake then, and what to do.
    """
    target = next((one for one in SpecVersion if one.value == to_version), None)
    if target is None:
        return  # which the migration refuses
    then = f"At DuckLake {to_version}, {opened_by(target)}. Nothing was changed."
    pinned, newest = settings.ducklake_version, settings.max_version
    if pinned not in (None, target):
        raise settings.invalid(
            DUCKLAKE_VERSION,
            f"The connection requires DuckLake {pinned.value}, and the lake is to be migrated to "
            f"{to_version}. {then} Migrate it to {pinned.value}, or write {to_version!r} into the field "
            "first.",
        )
    if newest is not None and target > newest:
        raise settings.invalid(
            MAX_VERSION,
            f"The connection allows DuckLake {newest.value} at most, and the lake is to be migrated to "
            f"{to_version}. {then} Write {to_version!r} into the field first, as soon as all clients of the "
            "lake open it.",
        )
