"""Change schemas, tables and views of a lake with SQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..hooks.ducklake import DuckLakeHook
from ..hooks.events import announce
from ..hooks.task import CommitIdentity, commit_identity, no_retry_on_user_errors
from ..lake.errors import InvalidInputError
from ..lake.format.versions import NEWEST, SpecVersion, write_version
from ..lake.writes.arguments import parse_flag
from .base import DuckLakeOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from ..hooks.lineage import Flow
    from ..lake.catalog.lake import Lake
    from ..lake.format.snapshots import CommittedSnapshot
    from ..lake.sql.duckdb.ddl import ParsedStatement


class DuckLakeDDLOperator(DuckLakeOperator):
    """Run DDL statements on a lake: all of them become one snapshot, or none does.

    CREATE, ALTER and DROP of schemas, tables and views, COMMENT ON and TRUNCATE, in DuckDB's SQL. Everything
    is read before anything is done, and an error names the statement and its place.

    :param sql: the statements, separated by semicolons: a string, a list of strings, or the names of ``.sql``
        files. (templated)
    :param create_lake: create the lake if the connection's database holds none, with the connection's data
        path; ``sql`` may then be left out. (templated)
    :param ducklake_conn_id: the connection of the lake. (templated)
    :param message: the commit message of the snapshot; default: the ids of the DAG and the task.
        (templated)
    :return: ``{"snapshot_id": 7, "statements": 3, "already_committed": False}``; ``snapshot_id`` is None if
        the lake already matched the statements; ``already_committed`` is true if an earlier try of the task
        made the snapshot.
    """

    template_fields: Sequence[str] = ("sql", "create_lake", *DuckLakeOperator.template_fields)
    template_ext: Sequence[str] = (".sql",)
    template_fields_renderers = {"sql": "sql"}  # noqa: RUF012 - Airflow's

    def __init__(
        self,
        *,
        sql: str | Sequence[str] | None = None,
        create_lake: bool | str = False,
        **kwargs: Any,  # noqa: ANN401 - Airflow's
    ) -> None:
        if sql is None and create_lake is False:
            raise InvalidInputError("Give sql, or create_lake=True, or both.")
        super().__init__(**kwargs)
        self.sql = sql
        self.create_lake = create_lake

    def flow(self) -> Flow:
        """Collect what the task reads and writes, for OpenLineage."""
        from ..hooks.lineage import Flow, flow_of_ddl

        return Flow() if self.sql is None else flow_of_ddl(self.sql)

    @no_retry_on_user_errors()
    def execute(self, context: Context) -> dict[str, Any]:
        """Run the statements, or return the commit of an earlier try."""
        creates = parse_flag("create_lake", self.create_lake)
        statements = () if self.sql is None and creates else _parsed(self.sql, NEWEST)
        with DuckLakeHook(self.ducklake_conn_id, hook_lineage=False) as hook:
            identity = commit_identity(context, self, hook.settings().commit_namespace)
            message = self.message or identity.message
            lake = hook.get_or_create_lake() if creates else hook.lake()
            if statements:
                statements = _parsed(self.sql, lake.version)  # which may have less than the newest
            with identity.made_once(lake) as once:
                committed = _run(lake, statements, once, message) if statements else None
            announce(self, context, lake, () if committed is None else (int(committed.id),))
        if statements:
            self._report(committed)
        return {
            "snapshot_id": int(committed.id) if committed is not None else None,
            "statements": len(statements),
            "already_committed": committed is not None and committed.is_earlier,
        }

    def _report(self, committed: CommittedSnapshot | None) -> None:
        if committed is None:
            self.log.info("No snapshot was made: the lake already matches the statements (options make none)")
        elif committed.is_earlier:
            self.log.info(
                "This task has already committed snapshot %d, at %s: nothing was run.",
                committed.id,
                committed.time.isoformat(timespec="seconds"),
            )
        else:
            self.log.info("Committed snapshot %d", committed.id)


def _parsed(sql: object, version: SpecVersion) -> tuple[ParsedStatement, ...]:
    from ..lake.sql.duckdb.ddl import parse_ddl

    texts = [sql] if isinstance(sql, str) else sql
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise InvalidInputError(f"sql is {sql!r}. Give a string or a list of strings.")
    statements = parse_ddl(texts, write_version(version))
    if not statements:
        raise InvalidInputError("sql holds no statement. Give one, or leave the task out.")
    return statements


def _run(
    lake: Lake, statements: Sequence[ParsedStatement], identity: CommitIdentity, message: str
) -> CommittedSnapshot | None:
    from ..lake.catalog.drafting.ddl import apply_ddl

    identity.keyed_commit(lake)  # what a deleted run of this name left behind is not this task's
    with lake.transaction("airflow", message, identity.extra, identity.key) as tx:
        if tx.committed is None:
            apply_ddl(tx, statements)
    return tx.committed
