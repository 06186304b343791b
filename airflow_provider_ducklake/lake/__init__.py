"""DuckLake lakes from Python and Spark, for notebooks, scripts and ``@task`` functions, without Airflow.

The names below and ``errors`` are public. Every module behind them may change with any release.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import imported_when_used

if TYPE_CHECKING:
    from . import errors
    from .catalog.drafting.ddl import apply_ddl
    from .catalog.drafting.transaction import LakeTransaction
    from .catalog.lake import Lake
    from .format.defaults import SqlExpression
    from .format.types.variants import decode_variant, encode_variant
    from .format.versions import write_version
    from .spark.job.package_zip import runnable_zip
    from .spark.read import read_changes, read_table
    from .sql.duckdb.ddl import parse_ddl
    from .writes.session import LakeSession

__all__ = [
    "Lake",
    "LakeSession",
    "LakeTransaction",
    "SqlExpression",
    "apply_ddl",
    "decode_variant",
    "encode_variant",
    "errors",
    "parse_ddl",
    "read_changes",
    "read_table",
    "runnable_zip",
    "write_version",
]
_MODULES = {
    "Lake": "catalog.lake",
    "LakeSession": "writes.session",
    "LakeTransaction": "catalog.drafting.transaction",
    "SqlExpression": "format.defaults",
    "apply_ddl": "catalog.drafting.ddl",
    "decode_variant": "format.types.variants",
    "encode_variant": "format.types.variants",
    "parse_ddl": "sql.duckdb.ddl",
    "read_changes": "spark.read",
    "read_table": "spark.read",
    "runnable_zip": "spark.job.package_zip",
    "write_version": "format.versions",
}

__getattr__ = imported_when_used(__name__, _MODULES)
