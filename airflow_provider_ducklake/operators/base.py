"""The common part of the operators."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from inspect import signature
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import BaseOperator

from ..hooks.ducklake import DuckLakeHook
from ..hooks.task import LogsInLines, ShownByName, TaskDone
from ..lake.errors import InvalidInputError
from ..lake.format.snapshots import OnClear
from ..lake.writes.arguments import is_template, parse_word

if TYPE_CHECKING:
    from ..hooks.lineage import Flow


class TaskBase(ShownByName, LogsInLines):
    """The common base of operators, with Spark and without: name on Airflow's pages, log, lineage."""

    ducklake_conn_id: str
    done: TaskDone

    def __init__(self, **kwargs: Any) -> None:  # noqa: ANN401 - Airflow's
        try:
            super().__init__(**kwargs)
        except TypeError as error:  # of an argument that no class of the operator's has, or of another cause
            inits = [vars(one)["__init__"] for one in type(self).__mro__ if "__init__" in vars(one)]
            known = {name for init in inits for name in signature(init).parameters}
            unknown = [name for name in kwargs if name not in known]
            near = (get_close_matches(_MEANT.get(name, name), known, 1) for name in unknown)
            if meant := [one for one, *_ in filter(None, near)]:
                raise InvalidInputError(
                    f"{type(self).__name__} has no argument {', '.join(unknown)}. Did you mean "
                    f"{', '.join(meant)}?"
                ) from error
            raise

    def flow(self) -> Flow:
        """Collect what the task reads and writes, for OpenLineage."""
        from ..hooks.lineage import Flow

        return Flow()

    def get_openlineage_facets_on_start(self) -> Any:  # noqa: ANN401 - OpenLineage's
        """Return the datasets that the task is to read and write."""
        from ..hooks.lineage import lineage_at_start

        return lineage_at_start(self)

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:  # noqa: ANN401, ARG002 - OpenLineage's
        """Return the datasets that the task read and wrote."""
        from ..hooks.lineage import lineage_at_end

        return lineage_at_end(self)

    def get_openlineage_facets_on_failure(self, task_instance: Any) -> Any:  # noqa: ANN401, ARG002 - OpenLineage's
        """Return the datasets that the task was to read and write."""
        from ..hooks.lineage import lineage_at_failure

        return lineage_at_failure(self)


_MEANT = {"path": "source", "query": "sql"}


class DuckLakeOperator(TaskBase, BaseOperator):
    """An operator that works on a lake without Spark.

    :param ducklake_conn_id: the connection of the lake. (templated)
    :param message: the commit message of the snapshot; unused if none is made. (templated)
    :param asset_events: Airflow gets an event of the asset of each table that the task changed,
        ``ducklake://connection/schema/table``.
    """

    template_fields: Sequence[str] = ("ducklake_conn_id", "message")

    def __init__(
        self,
        *,
        ducklake_conn_id: str = DuckLakeHook.default_conn_name,
        message: str | None = None,
        asset_events: bool = True,
        **kwargs: Any,  # noqa: ANN401 - Airflow's
    ) -> None:
        super().__init__(**kwargs)
        self.ducklake_conn_id = ducklake_conn_id
        self.message = message
        self.asset_events = asset_events
        self.done = TaskDone()


def check_on_clear(value: object) -> None:
    """Validate ``on_clear`` now, unless it is a template.

    Raises:
        InvalidInputError: it is not one of the words.
    """
    if isinstance(value, str) and not is_template(value):
        parse_word("on_clear", value, OnClear)
