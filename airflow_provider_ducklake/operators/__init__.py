"""Airflow operators of the provider, one verb per file; every operator can be imported from here, too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ducklake import imported_when_used

if TYPE_CHECKING:
    from airflow_provider_ducklake.operators.add_files import DuckLakeAddFilesOperator
    from airflow_provider_ducklake.operators.add_table import DuckLakeAddTableOperator
    from airflow_provider_ducklake.operators.cleanup import (
        DuckLakeCleanupOldFilesOperator,
        DuckLakeDeleteOrphanedFilesOperator,
    )
    from airflow_provider_ducklake.operators.commit import (
        DuckLakeCommitOperator,
        DuckLakeDiscardStagedOperator,
    )
    from airflow_provider_ducklake.operators.compact import (
        DuckLakeSparkMergeAdjacentFilesOperator,
        DuckLakeSparkRewriteDataFilesOperator,
    )
    from airflow_provider_ducklake.operators.ddl import DuckLakeDDLOperator
    from airflow_provider_ducklake.operators.delete import DuckLakeSparkDeleteOperator
    from airflow_provider_ducklake.operators.expire_snapshots import DuckLakeExpireSnapshotsOperator
    from airflow_provider_ducklake.operators.export_catalog import DuckLakeExportCatalogOperator
    from airflow_provider_ducklake.operators.flush_inlined_data import DuckLakeFlushInlinedDataOperator
    from airflow_provider_ducklake.operators.health import DuckLakeTableHealthOperator
    from airflow_provider_ducklake.operators.insert import DuckLakeSparkInsertOperator
    from airflow_provider_ducklake.operators.maintenance import ducklake_maintenance
    from airflow_provider_ducklake.operators.merge import DuckLakeSparkMergeOperator
    from airflow_provider_ducklake.operators.migrate import DuckLakeMigrateOperator
    from airflow_provider_ducklake.operators.restore import DuckLakeRestoreOperator
    from airflow_provider_ducklake.operators.sql import DuckLakeSparkSQLOperator
    from airflow_provider_ducklake.operators.stream import DuckLakeSparkStreamOperator
    from airflow_provider_ducklake.operators.tag import DuckLakeTagOperator
    from airflow_provider_ducklake.operators.update import DuckLakeSparkUpdateOperator
    from airflow_provider_ducklake.operators.verify import DuckLakeVerifyOperator

__all__ = [
    "DuckLakeAddFilesOperator",
    "DuckLakeAddTableOperator",
    "DuckLakeCleanupOldFilesOperator",
    "DuckLakeCommitOperator",
    "DuckLakeDDLOperator",
    "DuckLakeDeleteOrphanedFilesOperator",
    "DuckLakeDiscardStagedOperator",
    "DuckLakeExpireSnapshotsOperator",
    "DuckLakeExportCatalogOperator",
    "DuckLakeFlushInlinedDataOperator",
    "DuckLakeMigrateOperator",
    "DuckLakeRestoreOperator",
    "DuckLakeSparkDeleteOperator",
    "DuckLakeSparkInsertOperator",
    "DuckLakeSparkMergeAdjacentFilesOperator",
    "DuckLakeSparkMergeOperator",
    "DuckLakeSparkRewriteDataFilesOperator",
    "DuckLakeSparkSQLOperator",
    "DuckLakeSparkStreamOperator",
    "DuckLakeSparkUpdateOperator",
    "DuckLakeTableHealthOperator",
    "DuckLakeTagOperator",
    "DuckLakeVerifyOperator",
    "ducklake_maintenance",
]
_MODULES = {
    "DuckLakeAddFilesOperator": "add_files",
    "DuckLakeAddTableOperator": "add_table",
    "DuckLakeCleanupOldFilesOperator": "cleanup",
    "DuckLakeCommitOperator": "commit",
    "DuckLakeDDLOperator": "ddl",
    "DuckLakeDeleteOrphanedFilesOperator": "cleanup",
    "DuckLakeDiscardStagedOperator": "commit",
    "DuckLakeExpireSnapshotsOperator": "expire_snapshots",
    "DuckLakeExportCatalogOperator": "export_catalog",
    "DuckLakeMigrateOperator": "migrate",
    "DuckLakeRestoreOperator": "restore",
    "DuckLakeSparkDeleteOperator": "delete",
    "DuckLakeFlushInlinedDataOperator": "flush_inlined_data",
    "DuckLakeSparkInsertOperator": "insert",
    "DuckLakeSparkMergeAdjacentFilesOperator": "compact",
    "DuckLakeSparkMergeOperator": "merge",
    "DuckLakeSparkRewriteDataFilesOperator": "compact",
    "DuckLakeSparkSQLOperator": "sql",
    "DuckLakeSparkStreamOperator": "stream",
    "DuckLakeSparkUpdateOperator": "update",
    "DuckLakeTableHealthOperator": "health",
    "DuckLakeTagOperator": "tag",
    "DuckLakeVerifyOperator": "verify",
    "ducklake_maintenance": "maintenance",
}
__getattr__ = imported_when_used(__name__, _MODULES)
