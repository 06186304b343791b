"""Compaction as its job and its operator do it, without Spark."""

import uuid

from airflow_provider_ducklake.catalog.lake import Lake
from airflow_provider_ducklake.planning.compaction import Compaction, MergeRule
from airflow_provider_ducklake.planning.write import plan_write
from airflow_provider_ducklake.spec.snapshots import CommitInfo, CommittedSnapshot
from airflow_provider_ducklake.storage.compact_files import Merging
from airflow_provider_ducklake.transaction.changes import MergedFile


def merged_files(lake: Lake, planned: Compaction) -> list[MergedFile]:
    """Write the files of a plan."""
    table = planned.table
    plan = plan_write(table, f"{table.root}ducklake-{uuid.uuid4()}/")
    merging = Merging(str(table.name), table.snapshot.id, plan.settings, lake.locate)
    return [
        merging.merge(one, f"{plan.directory}{number}.parquet") for number, one in enumerate(planned.bins)
    ]


def merge_adjacent(lake: Lake, table: str | tuple[str, str] = "t", **limits: int) -> CommittedSnapshot | None:
    """Merge the small files of a table; None: there is nothing to merge."""
    planned = lake.plan_merge(table, MergeRule(**limits))
    return lake.merge_files(planned.table, merged_files(lake, planned), CommitInfo())
