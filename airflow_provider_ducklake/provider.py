"""The metadata of this provider; every Airflow process calls it, so it imports next to nothing."""

from __future__ import annotations

from typing import Any

from . import __version__
from .hooks.connection_form import conn_fields, metadata_field_behaviour

_NAME = "DuckLake"


def _modules(*names: str) -> list[dict[str, Any]]:
    modules = [f"airflow_provider_ducklake.{name}" for name in names]
    return [{"integration-name": _NAME, "python-modules": modules}]


def get_provider_info() -> dict[str, Any]:
    """Return the provider's metadata, as ``airflow/provider_info.schema.json`` describes it."""
    return {
        "package-name": "airflow-provider-ducklake-spark",
        "name": _NAME,
        "description": "Runs the whole life of a DuckLake lakehouse as DAG tasks, with Spark doing the work.",
        "versions": [__version__],
        "integrations": [
            {"integration-name": _NAME, "external-doc-url": "https://ducklake.select/", "tags": ["software"]}
        ],
        "hooks": _modules("hooks.ducklake"),
        "operators": _modules(
            "operators.add_files",
            "operators.add_table",
            "operators.cleanup",
            "operators.commit",
            "operators.compact",
            "operators.ddl",
            "operators.delete",
            "operators.expire_snapshots",
            "operators.export_catalog",
            "operators.flush_inlined_data",
            "operators.health",
            "operators.insert",
            "operators.maintenance",
            "operators.merge",
            "operators.migrate",
            "operators.restore",
            "operators.sql",
            "operators.stream",
            "operators.tag",
            "operators.update",
            "operators.verify",
        ),
        "sensors": _modules("sensors.snapshot"),
        "triggers": _modules("triggers.application", "triggers.snapshot"),
        "extra-links": ["airflow_provider_ducklake.hooks.spark_submit.SparkApplicationLink"],
        "asset-uris": [
            {
                "schemes": ["ducklake"],
                "handler": "airflow_provider_ducklake.assets.ducklake.sanitize_uri",
                "factory": "airflow_provider_ducklake.assets.ducklake.create_asset",
                "to_openlineage_converter": (
                    "airflow_provider_ducklake.hooks.lineage.convert_asset_to_openlineage"
                ),
            }
        ],
        "connection-types": [
            {
                "connection-type": "ducklake",
                "hook-class-name": "airflow_provider_ducklake.hooks.ducklake.DuckLakeHook",
                "hook-name": _NAME,
                "ui-field-behaviour": metadata_field_behaviour(),
                "conn-fields": conn_fields(),
            }
        ],
    }
