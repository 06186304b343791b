"""Tables as assets: ``ducklake://<connection id>/<schema>/<table>``, a nested schema a segment for each name.

DuckDB ignores the case of ASCII letters in names, so the URI has them in lower case: one table, one asset.
The URI is the asset's name, too: Airflow lets one URI have one name, and every DAG has to use the same.

Two more assets a table may have. ``?by=partition``: its partitions, with an event for each, since an event
with a partition key starts only DAGs that are scheduled by partitions, and one without only the others
(Airflow 3.2 and later). ``?by=watcher``: changes by any client, since Airflow takes an asset's watchers off
when it parses a DAG that names the asset without them, as the tasks that write the table do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, quote, unquote

from airflow.providers.common.compat.sdk import Asset

from ..lake.errors import InvalidInputError
from ..lake.format.names.identifiers import QualifiedName, TableName

if TYPE_CHECKING:
    from airflow.sdk import AssetWatcher


SCHEME = "ducklake"
GROUP = "ducklake"
BY_PARTITION = "by=partition"
BY_WATCHER = "by=watcher"
_EXAMPLE = f"{SCHEME}://ducklake_default/sales/orders"


def uri_of(ducklake_conn_id: str, table: TableName, kind: str = "") -> str:
    """Return the URI of a connection's table, or of one of its other assets: ``BY_…``.

    >>> uri_of("prod", "Sales.orders"), uri_of("prod", "orders")
    ('ducklake://prod/sales/orders', 'ducklake://prod/main/orders')
    >>> uri_of("prod", ("sales", "or/ders"), BY_WATCHER)
    'ducklake://prod/sales/or%2Fders?by=watcher'

    Raises:
        InvalidNameError: the table's name cannot be one.
    """
    parts = (ducklake_conn_id, *QualifiedName.of(table).folded)
    return f"{SCHEME}://" + "/".join(map(_escaped, parts)) + (f"?{kind}" if kind else "")


def create_asset(
    *,
    table: TableName,
    ducklake_conn_id: str = "ducklake_default",
    by_partition: bool = False,
    watchers: Sequence[AssetWatcher] = (),
    **other: Any,  # noqa: ANN401 - an asset's own
) -> Asset:
    """Return a table's asset: changes by tasks, or with ``watchers`` changes by any client.

    Args:
        table: the table, as ``"schema.table"``.
        ducklake_conn_id: the connection of the lake.
        by_partition: its partitions' asset, whose events have a partition key each.
        watchers: ``AssetWatcher``s, each with a ``DuckLakeSnapshotTrigger``. The asset is another one then
            than that of tasks' changes.
        other: ``Asset``'s ``group``, which is ``ducklake`` if not given, ``extra`` and so on.

    Raises:
        InvalidInputError: a name, which is the URI; or partitions that are watched.
        InvalidNameError: the table's name cannot be one.
    """
    if "name" in other:
        raise InvalidInputError(
            f"name={other['name']!r}: a table's asset has its URI as its name, in all DAGs. Leave it out."
        )
    if watchers and by_partition:
        raise InvalidInputError(
            "by_partition, watchers: a watcher's events are of the whole table. Give one."
        )
    uri = uri_of(ducklake_conn_id, table, BY_PARTITION if by_partition else BY_WATCHER if watchers else "")
    return Asset(uri, watchers=list(watchers), **{"group": GROUP, **other})


def sanitize_uri(uri: SplitResult) -> SplitResult:
    """Return a URI that is spelled as ``uri_of`` spells it; Airflow calls this for each asset of the scheme.

    Raises:
        InvalidInputError: it names no connection or no table, or more than those, or is spelled otherwise,
            so that the name that Airflow takes from it would be another than in other DAGs.
    """
    conn_id, names = unquote(uri.netloc), [unquote(one) for one in uri.path.split("/")[1:]]
    problem = _problem(uri, conn_id, names)
    if problem is None and (spelled := uri_of(conn_id, tuple(names), uri.query)) != uri.geturl():
        problem = f"is not spelled {spelled!r}"
    if problem is not None:
        raise InvalidInputError(
            f"The asset URI {uri.geturl()!r} {problem}. Write the connection, the schema and the table in "
            f"lower case, such as {_EXAMPLE}, or use create_asset."
        )
    return uri


def _problem(uri: SplitResult, conn_id: str, names: list[str]) -> str | None:
    if not conn_id:
        return "names no connection"
    if not all(names) or not names:
        return "names no table"
    if len(names) == 1 and "." in names[0]:
        return "has a dot between schema and table, where a slash belongs"
    if "@" in uri.netloc or ":" in uri.netloc:
        return "has a user or a port, which the connection says"
    known = ("", BY_PARTITION, BY_WATCHER)
    return None if uri.query in known else f"has a query other than {BY_PARTITION} and {BY_WATCHER}"


def table_of(asset_uri: str) -> tuple[str, QualifiedName]:
    """Return the connection and the table of a URI that Airflow has sanitized."""
    conn_id, *names = asset_uri.removeprefix(f"{SCHEME}://").partition("?")[0].split("/")
    return unquote(conn_id), QualifiedName.of(tuple(map(unquote, names)))


def _escaped(text: str) -> str:
    return quote(text, safe="-_.~")
