"""JSON of snapshots, as plans and jobs name them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_ducklake.spark.job.kinds import integer
from airflow_provider_ducklake.spec.ids import SnapshotId
from airflow_provider_ducklake.spec.snapshots import Snapshot

if TYPE_CHECKING:
    from collections.abc import Sequence


def encode_snapshot(snapshot: Snapshot) -> list[Any]:
    """Return a snapshot's id, counters and time as JSON."""
    counters = (snapshot.schema_version, snapshot.next_catalog_id, snapshot.next_file_id)
    return [snapshot.id, *counters, snapshot.time.isoformat()]


def decode_snapshot(items: Sequence[Any]) -> Snapshot:
    """Return what ``encode_snapshot`` was given."""
    snapshot_id, schema_version, next_catalog_id, next_file_id, time = items
    return Snapshot(
        SnapshotId(integer(snapshot_id)),
        integer(schema_version),
        integer(next_catalog_id),
        integer(next_file_id),
        datetime.fromisoformat(time),
    )
