"""Report how the rows of a table changed between two snapshots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from airflow_provider_ducklake.lake.planning.reading.scan import ChangeFeedPlan
    from airflow_provider_ducklake.lake.storage.files.filesystem import Location


@dataclass(frozen=True, slots=True)
class ChangeFeed:
    """The changes of a table between two snapshots, both included; ``plan`` says what is to be read."""

    plan: ChangeFeedPlan
    _locate: Callable[[str], Location]

    def read_arrow(self) -> pa.Table:
        """Return the changes, sorted by snapshot and row id.

        Columns: ``snapshot_id`` and ``rowid`` (int64), ``change_type`` (``insert``, ``delete``,
        ``update_preimage``, ``update_postimage``), then the table's as of the end snapshot.

        Raises:
            StorageError: a file is missing or damaged.
        """
        from airflow_provider_ducklake.lake.storage.rows.table_reader import read_changes  # noqa: PLC0415 - heavy

        return read_changes(self.plan, self._locate)

    def insertions(self) -> pa.Table:
        """Return the rows that came, also by updates, without ``change_type``."""
        return self._of("insert", "update_postimage")

    def deletions(self) -> pa.Table:
        """Return the rows that went, also by updates, without ``change_type``."""
        return self._of("delete", "update_preimage")

    def _of(self, *kinds: str) -> pa.Table:
        import pyarrow as pa
        import pyarrow.compute as pc

        changes = self.read_arrow()
        return changes.filter(pc.is_in(changes.column(2), value_set=pa.array(kinds))).remove_column(2)
