"""Compaction as its job and its operator do it, without Spark."""

import uuid
from dataclasses import replace

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.format.snapshots import CommitInfo, CommittedSnapshot
from airflow_provider_ducklake.lake.planning.upkeep.compaction import Compaction, MergeRule, RewriteRule
from airflow_provider_ducklake.lake.planning.writing.write import plan_write
from airflow_provider_ducklake.lake.storage.moving.compact import compactor
from airflow_provider_ducklake.lake.transaction.changes import MergedFile, RewrittenFile


def compacted_files(lake: Lake, planned: Compaction) -> list[MergedFile | RewrittenFile]:
    """Write the files of a plan."""
    table = planned.table
    plan = plan_write(table, f"{table.root}ducklake-{uuid.uuid4()}/")
    making = replace(compactor(planned, plan.settings), locate=lake.locate)
    return [
        making.compact(one, f"{plan.directory}{number}.parquet") for number, one in enumerate(planned.bins)
    ]


def rewrite(
    lake: Lake, table: str | tuple[str, str] = "t", delete_threshold: float = 0.0, **limits: int
) -> CommittedSnapshot | None:
    """Rewrite the files of a table that lost rows; None: there are none."""
    planned = lake.maintenance.plan_rewrite(table, RewriteRule(delete_threshold, **limits))
    return lake.maintenance.commit_compacted(planned.table, compacted_files(lake, planned), CommitInfo())


def merge_adjacent(lake: Lake, table: str | tuple[str, str] = "t", **limits: int) -> CommittedSnapshot | None:
    """Merge the small files of a table; None: there is nothing to merge."""
    planned = lake.maintenance.plan_merge(table, MergeRule(**limits))
    return lake.maintenance.commit_compacted(planned.table, compacted_files(lake, planned), CommitInfo())
