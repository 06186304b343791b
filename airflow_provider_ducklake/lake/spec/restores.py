"""What a restore did to one table, as later operations need to know it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_provider_ducklake.lake.spec.ids import SnapshotId, TableId


@dataclass(frozen=True, slots=True)
class RestoredTable:
    """A table that snapshot ``restored_at`` made what ``source_id`` was at snapshot ``as_of``.

    ``source_id`` is the table itself, or the one in whose place it was created because the schema of that
    one had been dropped.
    """

    table_id: TableId
    restored_at: SnapshotId
    source_id: TableId
    as_of: SnapshotId

    @property
    def is_new(self) -> bool:
        """Whether the restore created the table."""
        return self.source_id != self.table_id
