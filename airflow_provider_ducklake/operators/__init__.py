"""Airflow operators of the provider, one verb per file; every operator can be imported from here, too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import imported_when_used

if TYPE_CHECKING:
    from .add_files import DuckLakeAddFilesOperator
    from .add_table import DuckLakeAddTableOperator
    from .cleanup import DuckLakeCleanupOldFilesOperator, DuckLakeDeleteOrphanedFilesOperator
    from .commit import DuckLakeCommitOperator, DuckLakeDiscardStagedOperator
    from .compact import DuckLakeSparkMergeAdjacentFilesOperator, DuckLakeSparkRewriteDataFilesOperator
    from .ddl import DuckLakeDDLOperator
    from .delete import DuckLakeSparkDeleteOperator
    from .expire_snapshots import DuckLakeExpireSnapshotsOperator
    from .export_catalog import DuckLakeExportCatalogOperator
    from .flush_inlined_data import DuckLakeFlushInlinedDataOperator
    from .health import DuckLakeTableHealthOperator
    from .insert import DuckLakeSparkInsertOperator
    from .maintenance import ducklake_maintenance
    from .merge import DuckLakeSparkMergeOperator
    from .migrate import DuckLakeMigrateOperator
    from .restore import DuckLakeRestoreOperator
    from .sql import DuckLakeSparkSQLOperator
    from .stream import DuckLakeSparkStreamOperator
    from .tag import DuckLakeTagOperator
    from .update import DuckLakeSparkUpdateOperator
    from .verify import DuckLakeVerifyOperator

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
