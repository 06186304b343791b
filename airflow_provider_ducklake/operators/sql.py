"""Run Spark SQL over tables of a lake, and put its results into tables of the lake."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_ducklake.errors import InvalidInputError
from airflow_provider_ducklake.hooks.jdbc_source import refuse_secrets
from airflow_provider_ducklake.operators.base import announce_replaced, parse_at, parse_flag
from airflow_provider_ducklake.operators.spark import DuckLakeSparkOperator
from airflow_provider_ducklake.planning.reading.consumption import Log, changed
from airflow_provider_ducklake.spark.job.request import (
    Dataset,
    JobRequest,
    LakeSource,
    check_function,
    check_view_names,
)
from airflow_provider_ducklake.spec.commit_key import OnClear
from airflow_provider_ducklake.spec.consumption import Consumer
from airflow_provider_ducklake.spec.names.identifiers import DEFAULT_SCHEMA, QualifiedName, split_parts
from airflow_provider_ducklake.sql.spark.parse import parse_spark_sql
from airflow_provider_ducklake.sql.spark.statements import WriteMode, WriteStatement

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from airflow_provider_ducklake.catalog.committing.planned import KeyedCommit
    from airflow_provider_ducklake.catalog.lake import Lake
    from airflow_provider_ducklake.catalog.ledger.consumers import Consumed
    from airflow_provider_ducklake.hooks.commit_identity import CommitIdentity
    from airflow_provider_ducklake.hooks.jdbc_source import JdbcPasswords
    from airflow_provider_ducklake.operators.sql_plan import Reads
    from airflow_provider_ducklake.planning.writing.write import WritePlan, WriteResult
    from airflow_provider_ducklake.spark.job.request import Step
    from airflow_provider_ducklake.spec.commit_key import CommitRecord
    from airflow_provider_ducklake.spec.names.identifiers import FoldedName
    from airflow_provider_ducklake.spec.snapshots import CommitInfo, CommittedSnapshot, Snapshot
    from airflow_provider_ducklake.sql.spark.statements import SparkStatement


class DuckLakeSparkSQLOperator(DuckLakeSparkOperator):
    """Run Spark SQL over lake tables as of one snapshot; all results become one snapshot, or none does.

    ``sql`` is made of ``INSERT INTO``, ``INSERT OVERWRITE``, ``CREATE TABLE … AS``, ``CREATE OR REPLACE TABLE
    … AS`` and, for queries that several of them share, ``CREATE TEMPORARY VIEW``. Tables are named
    ``schema.table``. As in Spark, rows go to columns by position, with ``BY NAME`` by name.

    With ``incremental`` the query sees, in place of the tables, only the changes since this consumer's last
    run: their rows with the columns ``snapshot_id``, ``rowid`` and ``change_type`` (``insert``, ``delete``,
    ``update_preimage``, ``update_postimage``) before their own. The first run sees all rows as inserts. The
    mark moves in the transaction that commits the results.

    :param sql: one or more statements, in one text or a list. (templated, also from a ``.sql`` file)
    :param transform: ``"module:function"`` instead of ``sql``; called as ``f(spark, lake_table)``, where
        ``lake_table("sales.orders")`` is the DataFrame of one of ``tables``. It returns a DataFrame, or
        ``{"schema.table": DataFrame}``. Its module comes along in ``py_files``. (templated)
    :param tables: the tables and Spark views that ``transform`` reads. (templated)
    :param targets: what ``transform`` writes and how: ``{"sales.daily": "append"}``, or ``overwrite``,
        ``create``, ``create_if_missing``, ``replace``. (templated)
    :param sources: what else is read, as ``{"name": path or {…}}``, see ``DuckLakeSparkInsertOperator``; a
        ``transform`` takes them as its argument ``sources``. (templated)
    :param schema: where tables named without a schema lie. (templated)
    :param at: read this snapshot, by its id or an aware time; default: the newest at the start. (templated)
    :param incremental: True, or the names of the tables of which only the changes are wanted; True means all
        but those that are written. (templated)
    :param consumer: who consumes; default: DAG and task. Tasks that share a name share the marks. (templated)
    :param full_refresh: with ``incremental``: begin again. The query sees all rows as inserts, and the tables
        that it writes as empty; its results take the place of their rows. (templated)
    :param engine: as ``DuckLakeSparkInsertOperator``.
    :return: ``{"table": "sales.daily", "snapshot_id": 43, "read_snapshot_id": 42, "rows_added": 3,
        "files_added": 1, "bytes_added": 700, "tables": {"sales.daily": {"rows_added": 3, …}}, "consumed":
        {"sales.orders": [38, 42]}, "already_committed": False}``.
    """

    template_fields: Sequence[str] = (
        "sql",
        "transform",
        "tables",
        "targets",
        "sources",
        "schema",
        "at",
        "incremental",
        "consumer",
        "full_refresh",
        *DuckLakeSparkOperator.template_fields,
    )
    template_fields_renderers = {"sql": "sql", "sources": "json"}  # noqa: RUF012 - Airflow's

    def __init__(
        self,
        *,
        sql: str | Sequence[str] | None = None,
        transform: str | None = None,
        tables: Sequence[str] = (),
        targets: Mapping[str, str] | None = None,
        sources: Mapping[str, str | Mapping[str, Any]] | None = None,
        schema: str = DEFAULT_SCHEMA,
        at: int | datetime | str | None = None,
        incremental: bool | str | Sequence[str] = False,
        consumer: str | None = None,
        full_refresh: bool | str = False,
        engine: str = "auto",
        **kwargs: Any,  # noqa: ANN401 - SparkSubmitOperator's
    ) -> None:
        super().__init__(**kwargs)
        if (sql is None) == (transform is None):
            raise InvalidInputError("Give exactly one of sql and transform.")
        if (transform is None) != (targets is None) or (sql is not None and tables):
            raise InvalidInputError("targets and tables go with transform; sql names its tables itself.")
        if self.stage_only:
            raise InvalidInputError("stage_only=True: this operator commits its results itself.")
        if incremental is False and (consumer is not None or full_refresh is True):
            raise InvalidInputError("consumer and full_refresh go with incremental.")
        refuse_secrets(None, sources)
        self.sql = sql
        self.transform = transform
        self.tables = tables
        self.targets = targets
        self.sources = sources
        self.schema = schema
        self.at = at
        self.incremental = incremental
        self.consumer = consumer
        self.full_refresh = full_refresh
        self.engine = engine

    # What the statements say

    def begin(self, lake: Lake, identity: CommitIdentity, keyed: KeyedCommit) -> None:
        """Read the statements, and find out what is to be consumed."""
        if self.transform is not None:
            check_function(self.transform)
        self._statements = self._parsed()
        self._modes = self._parsed_targets()
        self._full_refresh = parse_flag("full_refresh", self.full_refresh)
        only_appends = set(self._modes.values()) == {WriteMode.APPEND}
        self._replaces = bool(keyed.seen.replaced) and only_appends and not self._full_refresh
        self._log = self._read_log(lake, identity)
        self._repeats = (
            self._log is not None
            and only_appends
            and not self._full_refresh
            and keyed.on_clear is OnClear.REPLACE
            and bool(self._log.earlier)
        )
        if self._replaces and self._log is not None and not self._repeats:
            raise InvalidInputError(
                "The task was cleared, but what it had consumed is no longer known: its snapshots have "
                "expired. Run it with full_refresh=True, or with on_clear='append' to go on behind it."
            )
        if self._replaces:
            announce_replaced(self.log, lake, keyed)

    def _parsed(self) -> tuple[SparkStatement, ...]:
        if self.sql is None:
            return ()
        check_view_names(self.sources or ())
        return parse_spark_sql(self.sql, tuple(self.sources or ()), self.schema)

    def _parsed_targets(self) -> dict[QualifiedName, WriteMode]:
        """Return the tables to be written, each with the first thing that is done to it."""
        modes: dict[QualifiedName, WriteMode] = {}
        seen = set()
        for one in self._statements:
            if isinstance(one, WriteStatement) and one.table.folded not in seen:
                seen.add(one.table.folded)
                modes[one.table] = one.mode
        for name, word in (self.targets or {}).items():
            modes[self._qualified(name)] = _mode(name, word)
        if not modes:
            raise InvalidInputError("Nothing is written: no statement but temporary views, or no targets.")
        return modes

    def _read_log(self, lake: Lake, identity: CommitIdentity) -> Log | None:
        if self.incremental is False or self.incremental == "False":
            return None
        self._consumer = _consumer(self.consumer, identity)
        key = identity.key if identity.starts_over else None
        known = lake.consumptions(self._consumer, starts_over=key)
        return Log(known, identity.key, lake.restored_tables())

    def _incremental_tables(self) -> frozenset[FoldedName] | None:
        if self.incremental is True or self.incremental == "True":
            return None
        names = [self.incremental] if isinstance(self.incremental, str) else self.incremental
        assert not isinstance(names, bool)
        return frozenset(self._qualified(name).folded for name in names)

    def _qualified(self, name: str) -> QualifiedName:
        """Return the name of a table; one without a schema lies where those of the statements do."""
        parts = split_parts(name)
        return QualifiedName.of((self.schema, parts[0]) if len(parts) == 1 else name)

    # What the job does

    def make_request(self, lake: Lake, passwords: JdbcPasswords) -> JobRequest | None:
        """Plan the reads at one snapshot, and the writes on the newest; None: there is nothing to do."""
        from uuid6 import uuid7  # noqa: PLC0415 - not needed to parse a DAG

        from airflow_provider_ducklake.operators.sql_plan import find_target  # noqa: PLC0415 - heavy

        job_id = str(uuid7())
        self._head = lake.current_snapshot()
        found = {name.folded: find_target(lake, name, mode, self._head) for name, mode in self._modes.items()}
        self._targets = [target for target in found.values() if target is not None]
        self._reads = self._new_reads(lake, frozenset(found))
        steps, plans = self._steps_and_plans(job_id)
        self._check_incremental()
        if not plans or self._sees_no_changes(lake):
            self._targets = []
            return None
        self.log.info(
            "Reading %s at snapshot %d", ", ".join(self._reads.names) or "no table", self._reads.at.id
        )
        for key in sorted(self._reads.of_source):
            self.log.info(
                "%s was restored as a new table: this run consumes what the old one had changed before, the "
                "next one what came since",
                self._reads.names_of[key],
            )
        source = LakeSource(
            tables=self._reads.tables,
            datasets=self._datasets(passwords),
            steps=tuple(steps),
            function=self.transform,
            as_inserts=frozenset(self._reads.as_inserts),
        )
        return JobRequest(job_id, source, tuple(plans), verb="sql", engine=self.engine)

    def _new_reads(self, lake: Lake, targets: frozenset[FoldedName]) -> Reads:
        from airflow_provider_ducklake.operators.sql_plan import Reads  # noqa: PLC0415 - heavy

        again = self._log.again() if self._log is not None and self._repeats else None
        return Reads(
            lake,
            lake.snapshot_at(version=again) if again is not None else self._pinned(lake),
            incremental=() if self._log is None else self._incremental_tables(),
            log=self._log,
            again=self._repeats,
            full_refresh=self._full_refresh,
            targets=targets,
        )

    def _pinned(self, lake: Lake) -> Snapshot:
        at = parse_at(self.at)
        if at is None:
            return self._head
        return lake.snapshot_at(version=at) if isinstance(at, int) else lake.snapshot_at(timestamp=at)

    def _steps_and_plans(self, job_id: str) -> tuple[list[Step], list[WritePlan]]:
        from airflow_provider_ducklake.operators.sql_plan import steps_of  # noqa: PLC0415 - heavy

        if self.transform is None:
            targets = {target.name.folded: target for target in self._targets}
            return steps_of(self._statements, self._reads, targets, job_id)
        for name in [self.tables] if isinstance(self.tables, str) else self.tables:
            self._reads.view_of(self._qualified(name), str(self._qualified(name)))
        plans = [target.plan(job_id, number) for number, target in enumerate(self._targets)]
        return self._reads.steps, plans

    def _datasets(self, passwords: JdbcPasswords) -> dict[str, Dataset]:
        return {
            name: Dataset.of(passwords.resolve(item), f"sources[{name!r}]")
            for name, item in (self.sources or {}).items()
        }

    def _check_incremental(self) -> None:
        if self._log is None:
            return
        wanted = self._incremental_tables()
        missing = (wanted or frozenset()) - self._reads.ranges.keys()
        if missing or not self._reads.ranges:
            names = ", ".join(sorted(".".join(name) for name in missing))
            raise InvalidInputError(
                f"incremental={self.incremental!r}: the statements read "
                f"{f'{names} not' if names else 'no table'}, or write it too. Name tables whose changes they "
                "are to see."
            )

    def _sees_no_changes(self, lake: Lake) -> bool:
        """Whether no table has changed that is to be consumed: the others alone call for no job."""
        return self._log is not None and all(
            one.after is not None
            and key not in self._reads.of_source
            and lake.table_changes(self._reads.names_of[key], one.after, ["data"]) is None
            for key, one in self._reads.ranges.items()
        )

    def _rows_of(self, results: Sequence[WriteResult]) -> list[tuple[QualifiedName, WriteResult]]:
        """Return the results with the names of the tables that they are for."""
        if self.transform is not None:
            names = [target.name for target in self._targets]
        else:
            known = {target.name.folded for target in self._targets}
            writes = [one for one in self._statements if isinstance(one, WriteStatement)]
            names = [one.table for one in writes if one.table.folded in known]
        return list(zip(names, results, strict=True))

    def commit(
        self, lake: Lake, results: Sequence[WriteResult], info: CommitInfo, keyed: KeyedCommit
    ) -> CommittedSnapshot | None:
        """Commit all results as one snapshot, and what was consumed for them."""
        from airflow_provider_ducklake.catalog.committing.planned import Stage  # noqa: PLC0415 - heavy
        from airflow_provider_ducklake.operators.sql_plan import rows_read, table_changes  # noqa: PLC0415

        replaced = lake.replaced_rows(keyed.seen, self._head.id) if self._replaces else ()
        changes = table_changes(self._targets, self._rows_of(results), empties=self._full_refresh)
        read = rows_read(self._targets, self._reads, self._head.id)
        stage = Stage(self._head.id, (*replaced, *read, *changes))
        return lake.commit_stages([stage], info, keyed=keyed, job_ids=self.job_ids, consumed=self._consumed())

    def _consumed(self) -> Consumed | None:
        if self._log is None:
            return None
        from airflow_provider_ducklake.catalog.ledger.consumers import Consumed  # noqa: PLC0415 - heavy

        ranges = changed(self._reads.ranges.values())
        return Consumed(self._consumer, ranges, self._log.entries) if ranges else None

    def summary(self, results: Sequence[WriteResult], committed: CommittedSnapshot | None) -> dict[str, Any]:
        """Return the numbers of what was read and written."""
        tables = {str(target.name): _numbers(()) for target in self._targets}
        for name, of_table in _grouped(self._rows_of(results) if results else ()).items():
            spelled = next(str(one.name) for one in self._targets if one.name.folded == name)
            tables[spelled] = _numbers(of_table)
        snapshot_id = int(committed.id) if committed is not None else None
        summary = {
            "table": ", ".join(tables),
            "snapshot_id": snapshot_id,
            "read_snapshot_id": int(self._reads.at.id),
            **_numbers(results),
            "tables": tables,
            "consumed": {
                self._reads.names_of[key]: [one.after, int(one.upto)]
                for key, one in self._reads.ranges.items()
            },
            "already_committed": False,
        }
        if committed is None:
            self.log.info("Nothing came of it: no snapshot was made.")
        else:
            self.log.info(
                "Committed snapshot %d to %s: %d rows, %d data files, %d bytes",
                snapshot_id,
                *(summary[key] for key in ("table", "rows_added", "files_added", "bytes_added")),
            )
        return summary

    def summary_of_records(self, lake: Lake, records: Sequence[CommitRecord]) -> dict[str, Any]:
        """Return the numbers that the catalog kept."""
        names = {row.id: str(row.qualified) for row in lake.table_rows()}
        rows = {names.get(one.table_id, "?"): one.row_count for one in records if one.table_id is not None}
        return {
            "table": ", ".join(rows),
            "snapshot_id": int(records[0].snapshot_id),
            "read_snapshot_id": None,
            "rows_added": sum(rows.values()),
            "files_added": None,
            "bytes_added": None,
            "tables": {
                name: {"rows_added": count, "files_added": None, "bytes_added": None}
                for name, count in rows.items()
            },
            "consumed": {},
            "already_committed": True,
        }


def _mode(table: str, word: str) -> WriteMode:
    try:
        return WriteMode(word)
    except ValueError:
        raise InvalidInputError(
            f"targets[{table!r}] is {word!r}; choose one of {', '.join(mode.value for mode in WriteMode)}."
        ) from None


def _consumer(name: str | None, identity: CommitIdentity) -> Consumer:
    if name is not None:
        return Consumer(name)
    airflow: Any = identity.extra["airflow"]
    return Consumer(identity.task, airflow["namespace"])


def _grouped(
    written: Sequence[tuple[QualifiedName, WriteResult]],
) -> dict[FoldedName, list[WriteResult]]:
    groups: dict[FoldedName, list[WriteResult]] = {}
    for name, result in written:
        groups.setdefault(name.folded, []).append(result)
    return groups


def _numbers(results: Sequence[WriteResult]) -> dict[str, int]:
    files = [file for result in results for file in result.data_files]
    return {
        "rows_added": sum(result.rows_written for result in results),
        "files_added": len(files),
        "bytes_added": sum(file.file_size_bytes for file in files),
    }
