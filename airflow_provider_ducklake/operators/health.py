"""Report the health of a lake's tables, and fail if it is out of bounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException

from ..hooks.ducklake import DuckLakeHook
from ..hooks.task import no_retry_on_user_errors
from ..lake.errors import InvalidInputError
from .base import DuckLakeOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from ..lake.catalog.lake import Lake


_OF_LAKE = ("snapshot_count", "scheduled_file_count")
_OF_TABLE = (
    "file_count",
    "file_size_bytes",
    "record_count",
    "delete_file_count",
    "delete_file_size_bytes",
    "deleted_row_count",
    "delete_ratio",
    "inlined_row_count",
    "inlined_delete_count",
)
_AGE = "hours_since_change"  # only where it is asked for: all snapshots are read for it
_BANDS = ("under_1_mib", "under_16_mib", "under_128_mib", "under_512_mib", "from_512_mib")


class DuckLakeTableHealthOperator(DuckLakeOperator):
    """Report numbers of tables (files by size, deletes, inlined rows) and of the lake (snapshots).

    They come from the catalog alone. Each is sent to Airflow's metrics as the gauge ``ducklake.<number>``
    with the tags ``conn_id`` and ``table``, and all are returned.

    :param tables: names of the tables; default: all. (templated)
    :param fail_above: upper bounds of numbers, such as ``{"delete_ratio": 0.3, "hours_since_change": 26}``;
        the task fails without retries if a table, or the lake, exceeds one. ``hours_since_change``, since
        when the rows of a table are unchanged, is found only if it has a bound. (templated)
    :param ducklake_conn_id: the connection of the lake. (templated)
    :param message: accepted as by every operator, but unused. (templated)
    :return: ``{"snapshot_id": 43, "snapshot_count": 40, "oldest_snapshot_time": "2026-11-01T00:00:00+00:00",
        "scheduled_file_count": 2, "tables": [{"name": "sales.orders", "file_count": 7, "file_size_bytes":
        4096, "files_by_size": {"under_1_mib": 7, ...}, "record_count": 100, "delete_file_count": 1,
        "delete_file_size_bytes": 900, "deleted_row_count": 5, "delete_ratio": 0.05, "inlined_row_count": 3,
        "inlined_delete_count": 0}]}``. A task that fails also pushes it to XCom, under the key ``health``.
    """

    template_fields: Sequence[str] = ("tables", "fail_above", *DuckLakeOperator.template_fields)

    def __init__(
        self,
        *,
        tables: Sequence[str] | str | None = None,
        fail_above: Mapping[str, float | str] | str | None = None,
        **kwargs: Any,  # noqa: ANN401 - Airflow's
    ) -> None:
        super().__init__(**kwargs)
        self.tables = tables
        self.fail_above = fail_above

    @no_retry_on_user_errors()
    def execute(self, context: Context) -> dict[str, Any]:
        """Collect the numbers, send them to the metrics, and fail if one exceeds its bound."""
        limits = _limits(self.fail_above)
        with closing(DuckLakeHook(self.ducklake_conn_id, hook_lineage=False).lake()) as lake:
            health = lake.table_health(self._names(lake)).as_json()
            if _AGE in limits:
                _add_ages(lake, health["tables"])
        self._emit(health)
        exceeded = list(_exceeded(health, limits))
        if exceeded:
            hand_on(context, "health", health)
            raise AirflowFailException("Out of bounds: " + "; ".join(exceeded) + ".")
        return health

    def _names(self, lake: Lake) -> Sequence[str] | None:  # noqa: ARG002 - others look
        """Return the tables that are looked at; None: all."""
        return table_names(self.tables)

    def _emit(self, health: Mapping[str, Any]) -> None:
        tags = {"conn_id": self.ducklake_conn_id}
        emit_gauges({name: health[name] for name in _OF_LAKE}, tags)
        self.log.info("Health at snapshot %s:", health["snapshot_id"])
        for line in health_lines(health["tables"]):
            self.log.info("%s", line)
        for table in health["tables"]:
            numbers = _numbers(table)
            emit_gauges(numbers, {**tags, "table": table["name"]})


def table_names(value: Sequence[str] | str | None) -> list[str] | None:
    """Return the tables that are meant; a template makes one text of one name, and none of nothing."""
    if isinstance(value, str):
        return [value] if value.strip() not in ("", "None") else None
    return None if value is None else list(value)


def hand_on(context: Context, key: str, value: object) -> None:
    """Give a value to others although the task is about to fail."""
    if "ti" in context:
        context["ti"].xcom_push(key=key, value=value)


_SHOWN = {  # heading: number
    "files": "file_count",
    "bytes": "file_size_bytes",
    "rows": "record_count",
    "delete files": "delete_file_count",
    "deleted": "delete_ratio",
    "inlined rows": "inlined_row_count",
    "inlined deletes": "inlined_delete_count",
    "under 1 MiB": "under_1_mib",
}


def health_lines(tables: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a heading, and the numbers that say what maintenance a table wants, a line for each table."""
    rows = [["table", *_SHOWN]]
    for table in tables:
        numbers = _numbers(table)
        cells = (
            f"{numbers[name]:.1%}" if name == "delete_ratio" else f"{numbers[name]:,}"
            for name in _SHOWN.values()
        )
        rows.append([table["name"], *cells])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, *numbers_of_it in rows:
        aligned = (cell.rjust(width) for cell, width in zip(numbers_of_it, widths[1:], strict=True))
        yield "  ".join([name.ljust(widths[0]), *aligned])


def _numbers(table: Mapping[str, Any]) -> dict[str, float]:
    age = {_AGE: table[_AGE]} if _AGE in table else {}
    return {**{name: table[name] for name in _OF_TABLE}, **table["files_by_size"], **age}


def _add_ages(lake: Lake, tables: Sequence[dict[str, Any]]) -> None:
    """Add since when the rows of each table are unchanged; at least, if older snapshots have expired."""
    from ..triggers.snapshot import last_change

    snapshots, now = lake.snapshots(), datetime.now(UTC)
    for table in tables:
        last = last_change(lake, table["name"], snapshots)
        if last is not None:  # else it was dropped a moment ago
            table[_AGE] = round((now - last.time).total_seconds() / 3600, 2)


def _limits(given: Mapping[str, float | str] | str | None) -> dict[str, float]:
    if given is None:
        return {}
    if isinstance(given, str):
        raise InvalidInputError(f"fail_above is {given!r}. Give a mapping, such as {{'delete_ratio': 0.3}}.")
    known = (*_OF_LAKE, *_OF_TABLE, _AGE, *_BANDS)
    limits: dict[str, float] = {}
    for name, most in given.items():
        if name not in known:
            raise InvalidInputError(f"fail_above names {name!r}; choose from {', '.join(known)}.")
        try:
            limits[name] = float(most)
        except (TypeError, ValueError):
            raise InvalidInputError(f"fail_above[{name!r}] is {most!r}; give a number.") from None
    return limits


def _exceeded(health: Mapping[str, Any], limits: Mapping[str, float]) -> Iterator[str]:
    of_lake = {name: health[name] for name in _OF_LAKE}
    for owner, numbers in [
        ("the lake", of_lake),
        *((one["name"], _numbers(one)) for one in health["tables"]),
    ]:
        for name, most in limits.items():
            if name not in numbers or numbers[name] <= most:
                continue
            if name == _AGE:
                yield f"{owner} has not changed for {numbers[name]:g} hours, more than {most:g}"
            else:
                yield f"{owner} has a {name} of {numbers[name]:g}, more than {most:g}"


def emit_gauges(values: Mapping[str, float], tags: Mapping[str, str]) -> None:
    """Set the gauges ``ducklake.<name>``; a backend without tags gets no more than the last of each name."""
    stats = _stats()
    for name, value in values.items():
        stats.gauge(f"ducklake.{name}", value, tags=dict(tags))


def _stats() -> Any:  # noqa: ANN401 - a class that Airflow has moved
    try:
        from airflow.sdk.observability.stats import Stats
    except ImportError:
        from airflow.stats import Stats
    return Stats
