"""Rows of an earlier commit under the same key, which the new commit replaces."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from airflow_provider_ducklake.spec.commit_key import FIRST_GENERATION

if TYPE_CHECKING:
    from airflow_provider_ducklake.catalog.lake import Lake
    from airflow_provider_ducklake.spec.ids import SnapshotId
    from airflow_provider_ducklake.transaction.changes import Change
    from airflow_provider_ducklake.transaction.replay import Replay

log = logging.getLogger(__name__)


def announce_replaced(lake: Lake, seen: Replay) -> None:
    """Say whose rows are replaced, and find out before any work whether they can be.

    Raises:
        UnsupportedFeatureError, TransactionConflictError: they cannot.
    """
    for record in seen.replaced:
        log.info(
            "%s: its %d rows of snapshot %d are replaced.",
            "A deleted run of this name had committed"
            if record.generation < FIRST_GENERATION
            else "This task was cleared after its commit",
            record.row_count,
            record.snapshot_id,
        )
    if seen.replaced:
        lake.replaced_rows(seen, lake.current_snapshot().id)


def replacing(lake: Lake, seen: Replay, base: SnapshotId) -> tuple[Change, ...]:
    """Return the changes that take out the rows which the new commit replaces."""
    return lake.replaced_rows(seen, base) if seen.replaced else ()
