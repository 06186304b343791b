"""Tables as assets: ``ducklake://<connection id>/<schema>/<table>``, a nested schema a segment for each name.

DuckDB ignores the case of ASCII letters in names, so the URI has them in lower case: one table, one asset.

With ``?by=partition`` it is the asset of the table's partitions: its events have a partition key each. They
are an asset of their own since an event with a partition key starts only DAGs that are scheduled by
partitions, and one without starts only the others (Airflow 3.2 and later).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from airflow.providers.common.compat.sdk import Asset

from airflow_provider_ducklake.errors import InvalidInputError
from airflow_provider_ducklake.spec.names.identifiers import QualifiedName

if TYPE_CHECKING:
    from urllib.parse import SplitResult

    from airflow_provider_ducklake.spec.names.identifiers import TableName

SCHEME = "ducklake"
_BY_PARTITION = "by=partition"
_EXAMPLE = f"{SCHEME}://ducklake_default/sales/orders"


def uri_of(ducklake_conn_id: str, table: TableName, *, by_partition: bool = False) -> str:
    """Return the URI of a connection's table.

    >>> uri_of("prod", "Sales.orders"), uri_of("prod", "orders")
    ('ducklake://prod/sales/orders', 'ducklake://prod/main/orders')
    >>> uri_of("prod", ("sales", "or/ders"))
    'ducklake://prod/sales/or%2Fders'

    Raises:
        InvalidNameError: the table's name cannot be one.
    """
    parts = (ducklake_conn_id, *QualifiedName.of(table).folded)
    return f"{SCHEME}://" + "/".join(map(_escaped, parts)) + (f"?{_BY_PARTITION}" if by_partition else "")


def create_asset(
    *,
    table: TableName,
    ducklake_conn_id: str = "ducklake_default",
    by_partition: bool = False,
    extra: dict[str, Any] | None = None,
    **named: Any,  # noqa: ANN401 - an asset's own: name, group, watchers
) -> Asset:
    """Return the asset of a table, or of its partitions; ``name``, ``watchers`` and so on are ``Asset``'s."""
    return Asset(uri=uri_of(ducklake_conn_id, table, by_partition=by_partition), extra=extra, **named)


def sanitize_uri(uri: SplitResult) -> SplitResult:
    """Return the URI as ``uri_of`` spells it; Airflow calls this for each asset of the scheme.

    Raises:
        InvalidInputError: it names no connection or no table, or more than those.
    """
    conn_id, names = unquote(uri.netloc), [unquote(one) for one in uri.path.split("/")[1:]]
    problem = _problem(uri, conn_id, names)
    if problem is not None:
        raise InvalidInputError(
            f"The asset URI {uri.geturl()!r} {problem}. Write the connection, the schema and the table: "
            f"{_EXAMPLE}"
        )
    named = QualifiedName.of(tuple(names))
    return uri._replace(netloc=_escaped(conn_id), path="".join(f"/{_escaped(one)}" for one in named.folded))


def _problem(uri: SplitResult, conn_id: str, names: list[str]) -> str | None:
    if not conn_id:
        return "names no connection"
    if not all(names) or not names:
        return "names no table"
    if len(names) == 1 and "." in names[0]:
        return "has a dot between schema and table, where a slash belongs"
    if "@" in uri.netloc or ":" in uri.netloc:
        return "has a user or a port, which the connection says"
    return f"has a query other than {_BY_PARTITION}" if uri.query not in ("", _BY_PARTITION) else None


def table_of(asset_uri: str) -> tuple[str, QualifiedName]:
    """Return the connection and the table of a URI that Airflow has sanitized."""
    conn_id, *names = asset_uri.removeprefix(f"{SCHEME}://").partition("?")[0].split("/")
    return unquote(conn_id), QualifiedName.of(tuple(map(unquote, names)))


def _escaped(text: str) -> str:
    return quote(text, safe="-_.~")
