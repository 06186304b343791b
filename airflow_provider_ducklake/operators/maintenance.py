"""The whole maintenance of a lake as one task group, with a mapped task for each table that needs it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from enum import StrEnum
from inspect import signature
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException, TaskGroup

from ..hooks.ducklake import DuckLakeHook
from ..hooks.task import no_retry_on_user_errors
from ..lake.errors import DuckLakeError, InvalidInputError, UnsupportedFeatureError
from ..lake.format.log_lines import counted, counts, size
from ..lake.format.names.identifiers import FoldedName, QualifiedName
from ..lake.writes.arguments import parse_flag, parse_min_rows, parse_word
from .base import DuckLakeOperator
from .cleanup import DuckLakeCleanupOldFilesOperator, DuckLakeDeleteOrphanedFilesOperator
from .compact import (
    DuckLakeSparkCompactionOperator,
    DuckLakeSparkMergeAdjacentFilesOperator,
    DuckLakeSparkRewriteDataFilesOperator,
)
from .expire_snapshots import DuckLakeExpireSnapshotsOperator
from .flush_inlined_data import DuckLakeFlushInlinedDataOperator
from .health import DuckLakeTableHealthOperator, table_names

if TYPE_CHECKING:
    from airflow.sdk import Context

    from ..lake.catalog.lake import Lake
    from ..lake.catalog.reports.health import TableHealth
    from .spark import DuckLakeSparkOperator


class MaintenanceStep(StrEnum):
    """What maintenance does, in this order."""

    FLUSH = "flush"
    EXPIRE = "expire"
    MERGE = "merge"
    REWRITE = "rewrite"
    CLEAN_UP = "clean_up"
    ORPHANS = "orphans"


_COMPACTIONS: Mapping[str, type[DuckLakeSparkCompactionOperator]] = {
    MaintenanceStep.MERGE: DuckLakeSparkMergeAdjacentFilesOperator,
    MaintenanceStep.REWRITE: DuckLakeSparkRewriteDataFilesOperator,
}
_OF_TABLES: Mapping[str, type[DuckLakeSparkOperator | DuckLakeFlushInlinedDataOperator]] = {
    MaintenanceStep.FLUSH: DuckLakeFlushInlinedDataOperator,
    **_COMPACTIONS,
}


def ducklake_maintenance(
    group_id: str = "ducklake_maintenance",
    *,
    ducklake_conn_id: str | None = None,
    tables: Sequence[str] | str | None = None,
    steps: Sequence[str] = tuple(MaintenanceStep),
    arguments: Mapping[str, Mapping[str, Any]] | None = None,
    spark: Mapping[str, Any] | None = None,
    min_inlined_rows: int = 1,
    min_files: int = 5,
    max_tables_at_once: int | None = None,
    fail_above: Mapping[str, float | str] | None = None,
    dry_run: bool | str | None = None,
) -> TaskGroup:
    """Return a task group that maintains a lake: flush, expire, merge, rewrite, clean up, delete orphans.

    Steps that work on tables first find out which tables need them, and run a mapped task for each; if no
    table does, the step is skipped. If a step or a table fails, the others still run; the last task
    (``report``) then fails and names them. The first task (``before``) and the last one send the numbers of
    the tables to the metrics and to XCom, as ``DuckLakeTableHealthOperator`` does. Arguments that are not
    given come from the DAG's ``default_args``, as for any task.

    :param group_id: the id of the group.
    :param ducklake_conn_id: the connection of the lake. (templated)
    :param tables: the tables that are flushed, merged and rewritten; default: all except those whose option
        ``auto_compact`` is off. The other steps work on the whole lake. (templated)
    :param steps: the steps to run, if not all: from ``flush``, ``expire``, ``merge``, ``rewrite``,
        ``clean_up``, ``orphans``; they run in this order.
    :param arguments: additional arguments for the operators of each step, such as ``{"expire": {"older_than":
        "7 days"}, "merge": {"max_file_size": "64MB"}}``. Without any, ages and thresholds are those of the
        lake's options.
    :param spark: arguments for all Spark operators, such as ``{"spark_conn_id": "cluster", "conf": {…}}``.
    :param min_inlined_rows: flush tables with at least this many inlined rows and deletes.
    :param min_files: merge tables in which at least this many files would be merged.
    :param max_tables_at_once: how many mapped tasks of a step run at the same time in one DAG run.
    :param fail_above: numbers beyond which ``report`` fails, as ``DuckLakeTableHealthOperator``. (templated)
    :param dry_run: only log what would be done: nothing is written, expired or deleted. (templated)

    Raises:
        InvalidInputError: a step is unknown, or arguments are given for a step that is left out.
    """
    chosen = [parse_word("steps", step, MaintenanceStep) for step in steps]
    arguments = arguments or {}
    for step in arguments:
        if parse_word("arguments", step, MaintenanceStep) not in chosen:
            raise InvalidInputError(f"arguments has {step!r}, but that step is left out.")
    common = _given(ducklake_conn_id=ducklake_conn_id)
    of_these, acting = _given(tables=tables), _given(dry_run=dry_run)
    of_table = {**common, **_given(max_active_tis_per_dagrun=max_tables_at_once)}
    least = {MaintenanceStep.FLUSH: min_inlined_rows, MaintenanceStep.MERGE: min_files}
    with TaskGroup(group_id) as group:
        # default_args may have bounds, which are for the report: all steps would be skipped
        before = DuckLakeMaintenanceHealthOperator(task_id="before", fail_above=None, **of_these, **common)
        after = {**common, "trigger_rule": "all_done", "pre_execute": _only_after(before.task_id)}
        last: Any = before
        for step in sorted(chosen, key=list(MaintenanceStep).index):
            given = dict(arguments.get(step, {}))
            if step in _OF_LAKE:
                task = _OF_LAKE[step](task_id=step, **{**acting, **after, **given})
                last >> task
            else:
                plan = DuckLakeMaintenancePlanOperator(
                    task_id=f"plan_{step}",
                    step=step,
                    least=least.get(step, 1),
                    arguments=given,
                    **of_these,
                    **acting,
                    **after,
                )
                own = acting if step == MaintenanceStep.FLUSH else spark or {}
                task = _mapped(step, plan, {**of_table, **own, **given})
                last >> plan >> task
            last = task
        last >> DuckLakeMaintenanceReportOperator(
            task_id="report",
            group=str(group.group_id),
            trigger_rule="all_done",
            **of_these,
            **_given(fail_above=fail_above),
            **common,
        )
    return group


def _given(**arguments: object) -> dict[str, Any]:
    """Keep the arguments that a user gave: one that is handed on beats the DAG's ``default_args``."""
    return {name: value for name, value in arguments.items() if value is not None}


def _mapped(step: MaintenanceStep, plan: DuckLakeMaintenancePlanOperator, given: Mapping[str, Any]) -> Any:  # noqa: ANN401 - Airflow's
    """Return a task of the step for each table that ``plan`` names."""
    partial = _OF_TABLES[step].partial(task_id=step, map_index_template="{{ task.table }}", **given)
    return partial.expand(table=plan.output)


def _known(lake: Lake, names: Sequence[str] | None) -> tuple[list[str] | None, list[str]]:
    """Return those of the tables that there are (None: all are meant), and those that there are not."""
    if names is None:
        return None, []
    there = {row.qualified.folded for row in lake.reads.table_rows()}
    missing = [name for name in names if _folded(name) not in there]
    return [name for name in names if name not in missing], missing


def _folded(name: str) -> FoldedName | None:
    """Fold a name, as names are compared; None: it is not a valid name of a table."""
    try:
        return QualifiedName.of(name).folded
    except InvalidInputError:
        return None


def _only_after(task_id: str) -> Callable[[Context], None]:
    """Build a check that skips a task whose group never began: it waits for others that may have failed."""

    def check(context: Context) -> None:
        if context["ti"].xcom_pull(task_ids=task_id) is None:
            raise AirflowSkipException(f"{task_id} did not succeed.")

    return check


def _default_arguments(step: str, default_args: Mapping[str, Any] | None) -> dict[str, Any]:
    """Choose the ``default_args`` that the step's operator takes, as its own tasks will have them."""
    names = {
        name
        for class_ in _OF_TABLES[step].__mro__
        if issubclass(class_, DuckLakeSparkCompactionOperator | DuckLakeFlushInlinedDataOperator)
        for name in signature(class_.__init__).parameters
    }
    given = default_args or {}
    return {name: given[name] for name in sorted(names & given.keys() - _OF_THE_PLAN)}


_OF_THE_PLAN = {"table", "schema", "dry_run"}  # which tables, and whether at all: the plan has those


class DuckLakeMaintenanceExpireOperator(DuckLakeExpireSnapshotsOperator):
    """Expire snapshots as ``DuckLakeExpireSnapshotsOperator`` does; skipped if nothing says which.

    Neither an argument nor the lake's option ``expire_older_than`` does.
    """

    @no_retry_on_user_errors()
    def execute(self, context: Context) -> dict[str, Any]:
        """Expire the snapshots that arguments or the lake's option choose; skip if neither is given."""
        if self.older_than is None and self.snapshots is None and self.keep_last is None:
            with closing(DuckLakeHook(self.ducklake_conn_id, hook_lineage=False).lake()) as lake:
                if lake.reads.effective_options().age("expire_older_than") is None:
                    raise AirflowSkipException(
                        "Nothing says what to expire: set the lake's option expire_older_than, or give "
                        "arguments for this step."
                    )
        return super().execute(context)


class DuckLakeMaintenancePlanOperator(DuckLakeOperator):
    """Find the tables that a maintenance step has something to do for. Nothing is changed.

    A table that cannot be inspected is returned, too, so that its own task fails.

    :param step: ``flush``, ``merge`` or ``rewrite``.
    :param tables: the tables to look at; default: all but those whose option ``auto_compact`` is off.
        (templated)
    :param least: the number of rows (flush) or files from which a table is included.
    :param arguments: arguments of the step's operator; the others come from ``default_args``. (templated)
    :param dry_run: return nothing; the log says what would be done. (templated as ``is_dry_run``)
    :return: the names of the tables, such as ``["sales.orders"]``.
    """

    template_fields: Sequence[str] = ("tables", "arguments", "is_dry_run", *DuckLakeOperator.template_fields)

    def __init__(
        self,
        *,
        step: str,
        tables: Sequence[str] | str | None = None,
        least: int = 1,
        arguments: Mapping[str, Any] | None = None,
        dry_run: bool | str = False,
        **kwargs: Any,  # noqa: ANN401 - Airflow's
    ) -> None:
        super().__init__(**kwargs)
        if parse_word("step", step, MaintenanceStep) not in _OF_TABLES:
            raise InvalidInputError(f"step={step!r} works on the lake, not on its tables.")
        self.step = str(step)
        self.tables = tables
        self.least = least
        self.arguments = {**_default_arguments(step, kwargs.get("default_args")), **(arguments or {})}
        self.is_dry_run = dry_run  # "dry_run" is a method of every operator

    @no_retry_on_user_errors()
    def execute(self, context: Context) -> list[str]:  # noqa: ARG002 - Airflow's signature
        """Look, and hand on the names."""
        dry_run = parse_flag("dry_run", self.is_dry_run)
        with closing(DuckLakeHook(self.ducklake_conn_id, hook_lineage=False).lake()) as lake:
            found = list(
                self._flushable(lake) if self.step == MaintenanceStep.FLUSH else self._compactable(lake)
            )
        if not found:
            self.log.info("%s: nothing to do – %s", self.step, self._why_nothing())
        return [] if dry_run else found

    def _why_nothing(self) -> str:
        match self.step:
            case MaintenanceStep.FLUSH:
                return f"no table has {counted(self.least, 'row')} or as many deletes in the catalog"
            case MaintenanceStep.MERGE:
                return f"no table has {self.least} small files that share a partition with another"
            case _:
                return "no file has lost as many of its rows as delete_threshold says"

    def _flushable(self, lake: Lake) -> Iterator[str]:
        names = table_names(self.tables)
        least = parse_min_rows(self.arguments.get("min_rows", self.least))
        for name in [None] if names is None else names:
            try:
                found = lake.flush_inlined_data(name, min_rows=least, dry_run=True)
            except DuckLakeError as error:
                if name is None:
                    raise
                self.log.warning("%s cannot be inspected: %s", name, error)
                yield name
                continue
            for one in found:
                what = counts((one.row_count, "row"), (one.delete_count, "delete"))
                self.log.info("%s has %s in the catalog", one.table, what)
                yield str(one.table)

    def _compactable(self, lake: Lake) -> Iterator[str]:
        names, missing = _known(lake, table_names(self.tables))
        for name in missing:
            self.log.warning("Table %s does not exist.", name)
            yield name
        for table in lake.table_health(names).tables:
            if self._may_need_it(table) and (
                names is not None or lake.table_snapshot(table.name).options.flag("auto_compact")
            ):
                yield from self._named_if_needed(lake, table.name)

    def _may_need_it(self, table: TableHealth) -> bool:
        """Judge by the numbers, which are there for all tables at once."""
        if self.step == MaintenanceStep.MERGE:
            return table.file_count >= max(2, self.least)
        return table.deleted_row_count > 0

    def _named_if_needed(self, lake: Lake, name: str) -> Iterator[str]:
        try:
            planned = _COMPACTIONS[self.step].compaction_of({**self.arguments, "table": name}).find(lake)
        except UnsupportedFeatureError as error:
            self.log.warning("%s is left unchanged: %s", name, error)
            return
        except DuckLakeError as error:
            self.log.warning("%s cannot be inspected: %s", name, error)
            yield name
            return
        files = counted(planned.file_count, "file")
        if planned.bins and planned.file_count < self.least:
            self.log.info("%s: %s to merge, and min_files is %d", name, files, self.least)
        elif planned.bins:
            into = (size(planned.file_size_bytes), len(planned.bins))
            self.log.info("%s: %s (%s) would become at most %d", name, files, *into)
            yield name


class DuckLakeMaintenanceHealthOperator(DuckLakeTableHealthOperator):
    """Report the numbers of the existing tables; the tasks of a missing table fail on their own."""

    def _names(self, lake: Lake) -> list[str] | None:
        names, missing = _known(lake, table_names(self.tables))
        if missing:
            self.log.warning("Table %s does not exist.", ", ".join(missing))
        return names


class DuckLakeMaintenanceReportOperator(DuckLakeMaintenanceHealthOperator):
    """Report the health of the tables after a maintenance group, and fail if one of its tasks has failed.

    :param group: the id of the task group.

    The other parameters are those of ``DuckLakeTableHealthOperator``.
    """

    def __init__(self, *, group: str, **kwargs: Any) -> None:  # noqa: ANN401 - the parent's
        super().__init__(**kwargs)
        self.group = group

    @no_retry_on_user_errors()
    def execute(self, context: Context) -> dict[str, Any]:
        """Report, and fail with the names of what failed."""
        failed = list(self._failed(context))
        began = context["ti"].xcom_pull(task_ids=f"{self.group}.before") is not None
        if not began and not failed:
            raise AirflowSkipException("The group was skipped.")
        health, complaints = self._health(context) if began else ({}, [])
        if failed:
            complaints.append(f"Failed: {', '.join(failed)}. See their logs; the others were processed.")
        if complaints:
            raise AirflowFailException(" ".join(complaints))
        return health

    def _health(self, context: Context) -> tuple[dict[str, Any], list[str]]:
        try:
            return super().execute(context), []
        except AirflowFailException as error:
            return {}, [str(error)]

    def _failed(self, context: Context) -> Iterator[str]:
        """Yield the tasks of the group that failed, mapped ones with their tables."""
        ti = context["ti"]
        states = ti.get_task_states(dag_id=ti.dag_id, task_group_id=self.group, run_ids=[ti.run_id])
        for task_id, state in sorted(states.get(ti.run_id, {}).items()):
            if state in ("failed", "upstream_failed"):
                yield self._named(context, task_id.removeprefix(f"{self.group}."))

    def _named(self, context: Context, task: str) -> str:
        step, _, index = task.rpartition("_")
        if step not in {str(one) for one in _OF_TABLES} or not index.isdecimal():
            return task
        tables = context["ti"].xcom_pull(task_ids=f"{self.group}.plan_{step}") or ()
        return f"{step} of {tables[int(index)]}" if int(index) < len(tables) else task


_OF_LAKE: Mapping[str, type[DuckLakeOperator]] = {
    MaintenanceStep.EXPIRE: DuckLakeMaintenanceExpireOperator,
    MaintenanceStep.CLEAN_UP: DuckLakeCleanupOldFilesOperator,
    MaintenanceStep.ORPHANS: DuckLakeDeleteOrphanedFilesOperator,
}
