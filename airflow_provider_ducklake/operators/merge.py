"""Merge rows of a source into a lake table with Spark."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_provider_ducklake.errors import InvalidInputError
from airflow_provider_ducklake.hooks.jdbc_source import refuse_secrets
from airflow_provider_ducklake.operators.base import parse_flag
from airflow_provider_ducklake.operators.row_changes import (
    TARGET_ALIAS,
    DuckLakeSparkRowChangeOperator,
    check_columns,
    check_values,
    plan_target,
)
from airflow_provider_ducklake.spark.job.request import (
    Action,
    Clause,
    LakeSource,
    RowChangeSource,
    Step,
    source_of,
)
from airflow_provider_ducklake.spark.types.identifiers import quoted
from airflow_provider_ducklake.spec.names.identifiers import QualifiedName, fold, quote

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_provider_ducklake.catalog.lake import Lake
    from airflow_provider_ducklake.hooks.jdbc_source import JdbcPasswords

SOURCE_ALIAS = "source"


class DuckLakeSparkMergeOperator(DuckLakeSparkRowChangeOperator):
    """Merge a source into a table: update, delete and insert rows as one snapshot.

    SQL's ``MERGE``: of the clauses for a row the first whose condition is true applies. A row of the table
    that several rows of the source would change is an error, which names some of them. NULL matches nothing.
    The source is read once. Rows that change keep their row ids.

    Exactly one of ``source``, ``sql``, ``transform`` and ``source_table`` says where the rows come from; the
    first three as in ``DuckLakeSparkInsertOperator``, with ``sources``.

    :param on: when rows match, in Spark SQL: ``"target.id = source.id"``; or a list of columns that both
        have, and that are to be equal. (templated)
    :param source: a path or ``{"format": …, "path": …, "options": {…}}``. (templated)
    :param sql: a Spark SQL query over ``sources``. (templated, also from a ``.sql`` file)
    :param transform: ``"module:function"``, called as ``f(spark, sources)``. (templated)
    :param sources: what ``sql`` or ``transform`` work on: ``{"name": path or {…}}``. (templated)
    :param source_table: a table of the lake or a view in Spark's dialect, as of the snapshot that the target
        is read at. (templated)
    :param when_matched: clauses for rows that match: ``{"condition": "…", "update": {"column":
        "expression"}}``, ``"update": "*"`` for all columns from those of the source with their names, or
        ``"delete": True``. Without a condition it is for all that are left. (templated)
    :param when_not_matched: clauses for rows of the source that match none: ``{"insert": {"column":
        "expression"}}`` or ``"insert": "*"``. Columns that are not named get their defaults. (templated)
    :param when_not_matched_by_source: clauses for rows of the table that no row of the source matches, as
        ``when_matched``. With one all of the table is read. (templated)
    :param update_all: short for ``when_matched=[{"update": "*"}]``.
    :param insert_all: short for ``when_not_matched=[{"insert": "*"}]``.
    :param target_alias: what expressions call the table.
    :param source_alias: what they call the source.
    :return: as ``DuckLakeSparkDeleteOperator``.
    """

    verb = "merge"
    template_fields: Sequence[str] = (
        "on",
        "source",
        "sql",
        "transform",
        "sources",
        "source_table",
        "when_matched",
        "when_not_matched",
        "when_not_matched_by_source",
        *DuckLakeSparkRowChangeOperator.template_fields,
    )
    template_fields_renderers = {"sql": "sql", "source": "json", "sources": "json"}  # noqa: RUF012 - Airflow's

    def __init__(
        self,
        *,
        on: str | Sequence[str],
        source: str | Mapping[str, Any] | None = None,
        sql: str | None = None,
        transform: str | None = None,
        sources: Mapping[str, str | Mapping[str, Any]] | None = None,
        source_table: str | tuple[str, str] | None = None,
        when_matched: Sequence[Mapping[str, Any]] = (),
        when_not_matched: Sequence[Mapping[str, Any]] = (),
        when_not_matched_by_source: Sequence[Mapping[str, Any]] = (),
        update_all: bool = False,
        insert_all: bool = False,
        target_alias: str = TARGET_ALIAS,
        source_alias: str = SOURCE_ALIAS,
        **kwargs: Any,  # noqa: ANN401 - the parent's
    ) -> None:
        super().__init__(**kwargs)
        if sum(argument is not None for argument in (source, sql, transform, source_table)) != 1:
            raise InvalidInputError("Give exactly one of source, sql, transform and source_table.")
        if (update_all and when_matched) or (insert_all and when_not_matched):
            raise InvalidInputError(
                "update_all stands for when_matched, insert_all for when_not_matched: give one of each."
            )
        if not (update_all or insert_all or when_matched or when_not_matched or when_not_matched_by_source):
            raise InvalidInputError("Nothing is to be done: give update_all, insert_all or a when_… clause.")
        _check_aliases(target_alias, source_alias)
        refuse_secrets(source, sources)
        self.on = on
        self.source = source
        self.sql = sql
        self.transform = transform
        self.sources = sources
        self.source_table = source_table
        self.when_matched = [{"update": "*"}] if update_all else when_matched
        self.when_not_matched = [{"insert": "*"}] if insert_all else when_not_matched
        self.when_not_matched_by_source = when_not_matched_by_source
        self.target_alias = target_alias
        self.source_alias = source_alias

    def changes(self, lake: Lake, passwords: JdbcPasswords) -> RowChangeSource:
        """Return what is merged, and how."""
        on = self._on()
        matched = _clauses(self.when_matched, "when_matched", Action.UPDATE, Action.DELETE)
        not_matched = _clauses(self.when_not_matched, "when_not_matched", Action.INSERT)
        left = _clauses(
            self.when_not_matched_by_source, "when_not_matched_by_source", Action.UPDATE, Action.DELETE
        )
        if any(clause.values is None for clause in left):
            raise InvalidInputError(
                "when_not_matched_by_source: there is no row of the source for '*'; name the columns."
            )
        plan = plan_target(
            lake,
            self.table,
            None if left else on,
            alias=self.target_alias,
            others=(self.source_alias,),
            stats_of="" if left else on,
        )
        check_columns(plan, () if isinstance(self.on, str) else map(quote, self.on))
        for clause in (*matched, *not_matched, *left):
            check_columns(plan, clause.values or ())
        return RowChangeSource(
            replace(plan, where=None),
            self._source(lake, passwords, int(plan.table.snapshot.id)),
            on,
            matched,
            not_matched,
            left,
            target_alias=self.target_alias,
            source_alias=self.source_alias,
        )

    def _on(self) -> str:
        if isinstance(self.on, str):
            return self.on
        sides = (self.target_alias, self.source_alias)
        equal = [" = ".join(f"{quoted(side)}.{quoted(name)}" for side in sides) for name in self.on]
        if not equal:
            raise InvalidInputError("on names no column; say when rows match.")
        return " AND ".join(equal)

    def _source(self, lake: Lake, passwords: JdbcPasswords, at: int) -> Any:  # noqa: ANN401 - one of four
        if self.source_table is not None:
            return _lake_source(lake, self.source_table, at)
        source = None if self.source is None else passwords.resolve(self.source)
        sources = {name: passwords.resolve(item) for name, item in (self.sources or {}).items()}
        return source_of(source, self.sql, self.transform, sources)


def _lake_source(lake: Lake, table: str | tuple[str, str], at: int) -> LakeSource:
    from airflow_provider_ducklake.operators.sql_plan import Reads  # noqa: PLC0415 - heavy

    reads = Reads(lake, lake.snapshot_at(version=at))
    view = reads.view_of(QualifiedName.of(table))
    steps = (*reads.steps, Step(f"SELECT * FROM {quoted(view)}", plan=0))  # noqa: S608 - a view's name
    return LakeSource(reads.tables, steps=steps)


_ALIAS = re.compile(r"[^\W\d]\w*")


def _check_aliases(target: str, source: str) -> None:
    if not (_ALIAS.fullmatch(target) and _ALIAS.fullmatch(source)) or fold(target) == fold(source):
        raise InvalidInputError(
            f"target_alias={target!r} and source_alias={source!r}: give two different names of letters and "
            "digits."
        )


def _clauses(items: object, name: str, *actions: Action) -> tuple[Clause, ...]:
    """Return the clauses that a user gave.

    Raises:
        InvalidInputError: one that cannot be read, or that never applies since one before it always does.
    """
    listed = [items] if isinstance(items, dict) else items
    if not isinstance(listed, list | tuple):
        raise InvalidInputError(f"{name} is {items!r}; give a list of clauses.")
    clauses = tuple(_clause(item, f"{name}[{place}]", actions) for place, item in enumerate(listed))
    for place, clause in enumerate(clauses[:-1]):
        if clause.condition is None:
            raise InvalidInputError(
                f"{name}[{place}] has no condition: what stands behind it would never apply."
            )
    return clauses


def _clause(item: object, name: str, actions: Sequence[Action]) -> Clause:
    words = " or ".join(repr(action.value) for action in actions)
    if not isinstance(item, dict) or set(item) - {"condition", *actions}:
        raise InvalidInputError(f"{name} is {item!r}; a clause is a dict of {words}, and 'condition'.")
    given = [action for action in actions if action.value in item]
    if len(given) != 1:
        raise InvalidInputError(f"{name} is {item!r}; it has exactly one of {words}.")
    (action,) = given
    condition = item.get("condition")
    if condition is not None and not isinstance(condition, str):
        raise InvalidInputError(f"{name}: the condition is {condition!r}, not a text.")
    value = item[action.value]
    if action is Action.DELETE:
        if not parse_flag(f"{name}['delete']", value):
            raise InvalidInputError(f"{name}: 'delete' is False. Leave the clause out.")
        return Clause(action, condition)
    if value == "*":
        return Clause(action, condition, None)
    return Clause(action, condition, check_values(value, f"{name}[{action.value!r}]"))
