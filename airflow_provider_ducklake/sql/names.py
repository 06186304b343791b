"""Which words SQL does not read as names, and how a path of names is written."""

from __future__ import annotations

from airflow_provider_ducklake.spec.names.quoting import written

# DuckDB's keywords of the kinds `reserved` and `type_function`; a test compares with the reference.
_KEYWORDS = """
all analyse analyze and any array as asc asymmetric both case cast check collate column constraint create
default deferrable desc describe distinct do else end except false fetch for foreign from group having in
initially intersect into lambda lateral leading limit not null offset on only or order pivot pivot_longer
pivot_wider placing primary qualify references returning select show some summarize symmetric table then
to trailing true union unique unpivot using variadic when where window with
anti asof at authorization binary by collation columns concurrently cross freeze full generated glob ilike
inner is isnull join left like map natural notnull outer overlaps positional right semi similar struct
tablesample try_cast unpack verbose
"""
RESERVED = frozenset(_KEYWORDS.split())


def written_path(parts: tuple[str, ...]) -> str:
    """Return a dotted path as ``spec.schema.resolve_path`` reads it."""
    return ".".join(map(written, parts))
