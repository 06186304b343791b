"""Tell Airflow which tables a task changed, and how: an asset event for each, and none where it changed none.

A table is an outlet by its URI alone: whatever name a DAG gives the asset of that URI, the event is that
asset's, and where no DAG has one there is nobody to tell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from airflow.providers.common.compat.sdk import Asset

from airflow_provider_ducklake.assets.ducklake import SCHEME, uri_of
from airflow_provider_ducklake.errors import InvalidNameError
from airflow_provider_ducklake.planning.reading.watermark import event_of
from airflow_provider_ducklake.writes.arguments import is_template

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

    from airflow_provider_ducklake.catalog.lake import Lake
    from airflow_provider_ducklake.hooks.task import Done
    from airflow_provider_ducklake.planning.reading.watermark import RangeReport

_LONGEST_KEY = 250  # characters of a partition key in Airflow


class LakeOperator(Protocol):
    """What is asked of an operator here."""

    ducklake_conn_id: str
    asset_events: bool
    done: Done
    outlets: list[Any]

    @property
    def log(self) -> Any: ...  # noqa: ANN401 - Airflow's


def declare(operator: LakeOperator, table: object) -> None:
    """Make a table that is known while the DAG is parsed an outlet, unless the user already did."""
    if not operator.asset_events or not isinstance(table, str | tuple):
        return
    if any(map(is_template, (operator.ducklake_conn_id, *_texts(table)))):
        return
    try:
        uri = uri_of(operator.ducklake_conn_id, table)
    except InvalidNameError:  # the task says so itself
        return
    if uri not in _uris(operator):
        operator.outlets = [*operator.outlets, Asset.ref(uri=uri)]


def announce(operator: LakeOperator, context: Context, lake: Lake, snapshot_ids: Sequence[int]) -> None:
    """Make an event of each table that the task's snapshots changed, and of no other outlet in the lake."""
    operator.done.snapshot_ids = tuple(snapshot_ids)
    if not operator.asset_events or "outlet_events" not in context:  # none where no task runs it
        return
    reports: dict[str, RangeReport] = {}
    for snapshot_id in snapshot_ids:
        for report in _reports(operator, lake, snapshot_id):
            uri = uri_of(operator.ducklake_conn_id, report.table)
            reports[uri] = report if uri not in reports else reports[uri].with_next(report)
    lake_uri = uri_of(operator.ducklake_conn_id, "t").removesuffix("main/t")
    unchanged = [one for one in _uris(operator) if one.startswith(lake_uri) and one not in reports]
    operator.outlets = [one for one in operator.outlets if _uri(one) not in unchanged]
    for report in reports.values():
        _announce(operator, context, report)


def _reports(operator: LakeOperator, lake: Lake, snapshot_id: int) -> Sequence[RangeReport]:
    """Return what a snapshot did; the commit has landed, so nothing here may fail the task."""
    try:
        return lake.reads.commit_reports(snapshot_id)
    except Exception as error:  # noqa: BLE001 - a retry would meet it again, and the rows are there
        operator.log.warning("Cannot tell what snapshot %d changed: %s", snapshot_id, error)
        return ()


def _announce(operator: LakeOperator, context: Context, report: RangeReport) -> None:
    """Make the table's event, and one of each partition if a DAG is scheduled by them."""
    from airflow_provider_ducklake.hooks.compat import PARTITION_EVENTS  # noqa: PLC0415 - not for DAG files

    event, conn_id = event_of(report, None), operator.ducklake_conn_id
    of_table = _accessor(operator, context, uri_of(conn_id, report.table))
    if of_table is not None:
        of_table.extra.update(event)
    keys = event["partitions"] or ()
    if not PARTITION_EVENTS or not keys or any(len(one) > _LONGEST_KEY for one in keys):
        return
    of_partitions = _accessor(operator, context, uri_of(conn_id, report.table, by_partition=True))
    if of_partitions is not None:
        of_partitions.extra.update(event)
        of_partitions.add_partitions(keys)


def _accessor(operator: LakeOperator, context: Context, uri: str) -> Any | None:  # noqa: ANN401 - Airflow's
    """Return what makes the event of the asset of a URI, now an outlet; None: there is no such asset."""
    outlet = next((one for one in operator.outlets if _uri(one) == uri), None)
    ref = Asset.ref(uri=uri) if outlet is None else outlet
    try:
        accessor = context["outlet_events"][ref]
    except Exception as error:  # noqa: BLE001 - the rows are there, whoever is told
        if "ASSET_NOT_FOUND" in str(error):  # no DAG has such an asset: nobody waits for it
            operator.log.debug("No asset has the URI %s: %s", uri, error)
        else:
            operator.log.warning("Cannot make the event of %s: %s", uri, error)
        operator.outlets = [one for one in operator.outlets if one is not outlet]
        return None
    if outlet is None:
        operator.outlets = [*operator.outlets, ref]
    return accessor


def _uris(operator: LakeOperator) -> list[str]:
    return [uri for one in operator.outlets if (uri := _uri(one)) is not None]


def _uri(outlet: object) -> str | None:
    uri = getattr(outlet, "uri", None)
    return uri if isinstance(uri, str) and uri.startswith(f"{SCHEME}://") else None


def _texts(table: str | tuple[Any, ...]) -> tuple[Any, ...]:
    return (table,) if isinstance(table, str) else table
