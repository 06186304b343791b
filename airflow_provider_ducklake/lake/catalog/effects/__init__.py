"""Build the SQL statements of a change; nothing here runs one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import singledispatch
from typing import TYPE_CHECKING

from ...transaction.changes import Change, NoteRestored, ReadRows

if TYPE_CHECKING:
    from ...transaction.changes import CommitState
    from ..database.tables import CatalogTables
    from ..dialects.dialect import Effect


@singledispatch
def effects_of(change: Change, state: CommitState, tables: CatalogTables) -> Iterator[Effect]:
    """Yield the statements of one change; takes ids from ``state`` and leaves its records there.

    Each kind of change has its function in a module of this room.
    """
    raise NotImplementedError((change, state, tables))


# what is looked at for conflicts, and what our own tables get
effects_of.register(ReadRows | NoteRestored, lambda *_: iter(()))

from . import files, restore, rows  # noqa: E402, F401 - they register theirs
from . import tables as of_tables  # noqa: E402, F401 - as well
