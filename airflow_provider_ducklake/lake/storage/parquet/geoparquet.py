"""GeoParquet's metadata, the key ``geo`` of a footer, by which DuckDB reads bytes as geometries.

*Source:* GeoParquet 1.1; which of it DuckDB 1.5.5 refuses, measured (tests/interop/test_geoparquet.py).
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_provider_ducklake.lake.errors import UnsupportedFeatureError
from airflow_provider_ducklake.lake.storage.parquet.schema_tree import BYTE_ARRAY

if TYPE_CHECKING:
    import pyarrow.parquet as pq

    from airflow_provider_ducklake.lake.storage.parquet.schema_tree import SchemaNode

_ENCODINGS = frozenset(
    ("WKB", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon")
)


def with_geometries(root: SchemaNode, metadata: pq.FileMetaData, where: str) -> SchemaNode:
    """Return the schema with the encoding on each column that GeoParquet's metadata calls a geometry.

    Structs of numbers, and columns with Parquet's own logical type, need none.

    Raises:
        UnsupportedFeatureError: DuckDB refuses to read anything of such a file; names ``where``.
    """
    said = (metadata.metadata or {}).get(b"geo")
    if said is None:
        return root
    try:
        geo = json.loads(said.decode(), parse_constant=_no_json)
    except (ValueError, RecursionError):  # which DuckDB passes over
        return root
    if (problem := _refused(geo)) is not None:
        raise UnsupportedFeatureError(
            f"{where}: GeoParquet's metadata {problem}, and DuckDB refuses the whole file: rewrite the file "
            "as GeoParquet 1.1, or insert its rows with Spark."
        )
    encodings = {name: one["encoding"] for name, one in geo["columns"].items()}
    return replace(root, children=tuple(_encoded(one, encodings) for one in root.children))


def _encoded(node: SchemaNode, encodings: dict[str, str]) -> SchemaNode:
    is_native = node.logical in _GEOSPATIAL
    return (
        node
        if node.physical != BYTE_ARRAY or is_native
        else replace(node, geoparquet=encodings.get(node.name))
    )


_GEOSPATIAL = (17, 18)  # GEOMETRY and GEOGRAPHY, by Parquet's numbers of LogicalType


def _no_json(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _refused(geo: Any) -> str | None:  # noqa: ANN401 - any JSON
    """Return what DuckDB finds wrong with the metadata."""
    if not isinstance(geo, dict):
        return "is no object"
    version, columns = geo.get("version"), geo.get("columns")
    if not isinstance(version, str) or version.startswith("3"):
        return f"is of version {version}"
    if not isinstance(columns, dict):
        return "has no columns"
    for name, one in columns.items():
        if not isinstance(one, dict):
            return f"has no object for column {name}"
        encoding = one.get("encoding")
        if not isinstance(encoding, str) or encoding not in _ENCODINGS:
            return f"has the encoding {encoding!r} for column {name}"
        if not isinstance(one.get("geometry_types"), list):
            return f"has no geometry_types for column {name}"
        if not isinstance(one.get("crs"), dict | None):
            return f"has a crs for column {name} that is no object"
    return None
