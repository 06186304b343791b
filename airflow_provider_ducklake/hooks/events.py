"""Declare the tables a task reads and writes, and create an event for each that its commit changed.

A table that is known while the DAG is parsed is an inlet or outlet: Airflow's pages show its tasks. An event
comes from what the task's snapshots did to the table, so a task that changed nothing makes none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from airflow import __version__
from airflow.providers.common.compat.sdk import Asset, AssetAlias

from ..assets.ducklake import BY_PARTITION, GROUP, SCHEME, create_asset, uri_of
from ..lake.errors import InvalidInputError, InvalidNameError, SnapshotNotFoundError
from ..lake.format.names.identifiers import QualifiedName
from ..lake.format.snapshots import require_id
from ..lake.format.tags import is_tag, tag_name
from ..lake.format.types.texts import parse_time, require_offset
from ..lake.writes.arguments import is_template

if TYPE_CHECKING:
    from airflow.sdk import Context

    from ..lake.catalog.lake import Lake
    from ..lake.planning.reading.watch import RangeReport, TableChanges
    from .task import TaskDone


# Not in compat.py, which DAG files do not import.
# In 3.1 an asset that only inlets name becomes inactive, and a task with an inactive inlet fails.
_INLETS_KEEP_ASSETS = not __version__.startswith("3.1.")
# Of tables that no DAG file names: Airflow creates the assets that events come with.
_FOUND_LATER = AssetAlias("ducklake", group=GROUP)


class AssetTask(Protocol):
    """The part of an operator or a sensor that is used here."""

    ducklake_conn_id: str
    inlets: list[Any]


class AssetOperator(Protocol):
    """The part of an operator that changes tables."""

    task_id: str
    ducklake_conn_id: str
    asset_events: bool
    done: TaskDone
    outlets: list[Any]

    @property
    def log(self) -> Any: ...  # noqa: ANN401 - Airflow's


def declare(operator: AssetOperator, *tables: object) -> None:
    """Make tables that are known while the DAG is parsed outlets."""
    if operator.asset_events:
        operator.outlets = _with(operator.outlets, operator.ducklake_conn_id, tables)


def declare_read(task: AssetTask, *tables: object) -> None:
    """Make tables that are known while the DAG is parsed inlets."""
    if _INLETS_KEEP_ASSETS:
        task.inlets = _with(task.inlets, task.ducklake_conn_id, tables)


def announce(operator: AssetOperator, context: Context, lake: Lake, snapshot_ids: Sequence[int]) -> None:
    """Make an event of each table that the task's snapshots changed, and of no other outlet in the lake.

    The commits have landed, so nothing here fails the task.
    """
    operator.done.snapshot_ids = tuple(snapshot_ids)
    if not operator.asset_events or "outlet_events" not in context:  # none where no task runs it
        return
    try:
        operator.outlets = _outlets(operator, context, _events(operator, lake, snapshot_ids))
        if (task := _executing(operator, context)) is not None:  # Airflow looks at its outlets alone
            task.outlets = [*task.outlets, *(one for one in operator.outlets if one not in task.outlets)]
    except Exception as error:  # noqa: BLE001 - a retry would meet it again, and the rows are there
        operator.log.warning("No asset events of snapshots %s: %s", list(snapshot_ids), error)


def _executing(operator: AssetOperator, context: Context) -> Any:  # noqa: ANN401 - Airflow's, of any kind
    """Return the task that executes an operator which is not the task itself; None: it is."""
    task = getattr(context["ti"], "task", None)
    return None if task is None or task.task_id == operator.task_id else task


def _events(operator: AssetOperator, lake: Lake, snapshot_ids: Sequence[int]) -> dict[str, Mapping[str, Any]]:
    """Return the event of each table, by its URI."""
    from ..lake.planning.reading.watch import event_of

    reports: dict[str, RangeReport] = {}
    for snapshot_id in snapshot_ids:
        for report in lake.reads.commit_reports(snapshot_id):
            try:
                uri = create_asset(table=report.table, ducklake_conn_id=operator.ducklake_conn_id).uri
            except ValueError as error:  # a name by another client that Airflow does not accept for an asset
                operator.log.warning("No asset event of table %.200s: %s", report.table, error)
                continue
            reports[uri] = report if uri not in reports else reports[uri].with_next(report)
    return {uri: event_of(report, None) for uri, report in reports.items()}


def _outlets(operator: AssetOperator, context: Context, events: Mapping[str, Mapping[str, Any]]) -> list[Any]:
    """Make the events, and return the outlets that have one, with those that are no tables of the lake."""
    lake_uri = uri_of(operator.ducklake_conn_id, "t").removesuffix("main/t")
    is_mapped = context["ti"].map_index not in (None, -1)
    is_unseen = is_mapped or _executing(operator, context) is not None  # by Airflow: what __init__ declared
    outlets = [one for one in operator.outlets if not (_uri(one) or "").startswith(lake_uri)]
    for outlet in operator.outlets:
        uri = _uri(outlet) or ""
        if is_unseen and uri == getattr(outlet, "name", None):
            continue
        table_uri, _, kind = uri.partition("?")
        if uri.startswith(lake_uri) and _has_event(operator, context, outlet, kind, events.get(table_uri)):
            outlets.append(outlet)
    rest = sorted(events.keys() - set(map(_uri, outlets)))
    return [*outlets, *_found_later(context, {uri: events[uri] for uri in rest})]


def _found_later(context: Context, events: Mapping[str, Mapping[str, Any]]) -> list[Asset | AssetAlias]:
    """Make events of tables that are no outlets by their URIs, and return what the outlets lack for them."""
    from .compat import ALIASES_KEEP_ASSETS

    assets = [Asset(uri, group=GROUP) for uri in events]
    for asset in assets:
        if ALIASES_KEEP_ASSETS:
            context["outlet_events"][_FOUND_LATER].add(asset, extra=dict(events[asset.uri]))
        else:  # the event is lost where no DAG has the asset
            context["outlet_events"][asset].extra.update(events[asset.uri])
    return [_FOUND_LATER] if assets and ALIASES_KEEP_ASSETS else [*assets]


def _with(assets: Sequence[Any], conn_id: str, tables: Sequence[object]) -> list[Any]:
    """Add the assets of tables whose valid name is known at parse time, each once."""
    found = list(assets)
    for table in tables:
        texts = table if isinstance(table, tuple) else (table,)
        if not all(isinstance(one, str) and not is_template(one) for one in (conn_id, *texts)):
            continue
        try:
            asset = create_asset(table=table, ducklake_conn_id=conn_id)  # type: ignore[arg-type] # texts
        except InvalidNameError:  # the task says so itself
            continue
        if asset.uri not in map(_uri, found):
            found.append(asset)
    return found


def _has_event(
    operator: AssetOperator, context: Context, outlet: object, kind: str, event: Mapping[str, Any] | None
) -> bool:
    """Make the event of an outlet, or those of its partitions; False: it has none."""
    if event is None:
        return False
    from .compat import PARTITION_EVENTS

    keys = (event["partitions"] or ()) if kind == BY_PARTITION else None
    if keys is not None and (not PARTITION_EVENTS or not keys):
        return False
    try:
        accessor = context["outlet_events"][outlet]  # type: ignore[index] # an asset, or a user's reference to one
    except Exception as error:  # noqa: BLE001 - the rows are committed, with or without the event
        operator.log.warning("Cannot make the event of %s: %s", outlet, error)
        return False
    accessor.extra.update(event)
    if keys is not None:
        accessor.add_partitions(keys)
    return True


def _uri(outlet: object) -> str | None:
    uri = getattr(outlet, "uri", None)
    return uri if isinstance(uri, str) and uri.startswith(f"{SCHEME}://") else None


# What a sensor waits for; the one decision behind its pokes and its trigger.


@dataclass(frozen=True, slots=True)
class PollResult:
    """The result of one poll of a lake: snapshots after ``start`` count, and ``newest`` was the newest."""

    start: int
    newest: int
    found: TableChanges | None

    @property
    def xcom(self) -> dict[str, Any] | None:
        """The XCom of what was found, None if nothing was."""
        if self.found is None:
            return None
        return {
            "table": self.found.table,
            "from_snapshot": self.start,
            "to_snapshot": int(self.found.to_snapshot),
            "changes": list(self.found.changes),
            "is_complete": self.found.is_complete,
        }


@dataclass(frozen=True, slots=True)
class Watch:
    """Wait for some kinds of changes of a table, made after a snapshot, a time or a tag."""

    table: QualifiedName
    words: frozenset[str]
    since: int | datetime | str

    @classmethod
    def of(
        cls,
        table: str | tuple[str, ...],
        changes: Collection[str],
        since: int | datetime | str | None,
        otherwise: Callable[[], datetime] | None = None,
    ) -> Watch:
        """Check what a user gave; ``otherwise`` returns the time that a ``since`` of None means."""
        from ..lake.planning.reading.watch import wanted_words

        return cls(QualifiedName.of(table), wanted_words(changes), _since(since, otherwise))

    def poll(self, lake: Lake) -> PollResult:
        """Look once; the changes that expired snapshots may have made count as well."""
        start, after = _bounds(lake, self.since)
        found = lake.reads.possible_changes(str(self.table), after, self.words)
        return PollResult(start, found.to_snapshot if found else lake.current_snapshot().id, found)

    def log_line(self, looked: PollResult) -> str:
        """Return the line for the log."""
        found = looked.found
        if found is None:
            what = f"No {' or '.join(sorted(self.words))}"
        else:
            verb = "Found" if found.is_complete else "Snapshots have expired, so there may be"
            what = f"{verb} {' and '.join(found.changes)}"
        return f"{what} in {self.table} after snapshot {looked.start}, newest: {looked.newest}"

    def as_arguments(self) -> dict[str, Any]:
        """Return the arguments of ``of`` as JSON has them."""
        since = self.since.isoformat() if isinstance(self.since, datetime) else self.since
        return {"table": str(self.table), "changes": sorted(self.words), "since": since}


def _since(
    since: int | datetime | str | None, otherwise: Callable[[], datetime] | None
) -> int | datetime | str:
    """Return a snapshot id, an aware time or a tag."""
    match since:
        case None if otherwise is not None:
            return otherwise()
        case datetime():
            return require_offset(since)
        case str() if since.strip().isdecimal():
            return require_id(int(since))
        case str() if is_tag(since.strip()):
            tag_name(since.strip())
            return since.strip()
        case str():
            return parse_time(since)
        case int() if not isinstance(since, bool) and since >= 0:
            return require_id(since)
    raise InvalidInputError(
        f"since is {since!r}. Give a snapshot id, an aware datetime, an ISO time with an offset, a tag, or "
        "None."
    )


def start_of(lake: Lake, since: int | datetime | str) -> int:
    """Return the snapshot after which changes count, by its id or tag, or the newest by a time."""
    return _bounds(lake, since)[0]


def _bounds(lake: Lake, since: int | datetime | str) -> tuple[int, int]:
    """Return the start, and the snapshot after which expired ones may be later than ``since``."""
    if isinstance(since, int):
        return since, since
    try:
        start = int(lake.snapshot_at(since).id)
    except SnapshotNotFoundError as error:  # every snapshot there is came later
        return max(error.oldest - 1, 0), 0
    return start, start
