"""The changes of one transaction, put in the order in which a commit applies and records them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_provider_ducklake.transaction.changes import (
    AppendFiles,
    Change,
    CreateSchema,
    CreateTable,
    DropSchema,
    DropTable,
    NewTableRef,
    TableRef,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

_ORDER = (DropTable, DropSchema, CreateSchema, CreateTable, AppendFiles)


def ordered(changes: Iterable[Change]) -> tuple[Change, ...]:
    """Return the changes in commit order: drops, creations, then one append for each table.

    Existing tables come before new ones and by id, as the reference numbers their files.
    """
    others: list[Change] = []
    appends: dict[TableRef, AppendFiles] = {}
    for change in changes:
        if not isinstance(change, AppendFiles):
            others.append(change)
        elif change.files:
            before = appends.get(change.table)
            appends[change.table] = replace(change, files=before.files + change.files) if before else change
    others.sort(key=lambda change: _ORDER.index(type(change)))
    return (*others, *sorted(appends.values(), key=_append_order))


def _append_order(change: AppendFiles) -> tuple[bool, int]:
    if isinstance(change.table, NewTableRef):
        return True, change.table.index
    return False, change.table


def changes_catalog(changes: Iterable[Change]) -> bool:
    """Whether the schema version rises: anything but new rows changes what names mean."""
    return any(not isinstance(change, AppendFiles) for change in changes)
