"""How names are written into the SQL texts that a catalog keeps."""

from __future__ import annotations

from airflow_provider_ducklake.lake.spec.names.identifiers import fold, quote, quote_if_needed
from airflow_provider_ducklake.lake.spec.names.keywords import KEYWORDS


def written(name: str) -> str:
    """Return a name as SQL reads it back, quoted where DuckDB quotes it: odd characters, and any keyword.

    >>> written("total"), written("Total"), written("Day"), written("order")
    ('total', 'Total', '"Day"', '"order"')
    """
    return quote(name) if fold(name) in KEYWORDS else quote_if_needed(name)
