"""Draws one change after another: what we call, the SQL that does the same, and what becomes of the model."""

import random
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_provider_ducklake.lake.format.defaults import SqlDefault
from tests.differential.drawn_lake import (
    ID,
    WIDER,
    Batch,
    Column,
    Lake,
    Struct,
    Table,
    Values,
    View,
    ours,
    sql,
)
from tests.differential.twin import OurLake

MOST_ROWS = 24
TRANSFORMS = {
    "identity": ("int32", "varchar", "date", "boolean", "int64", "uint16"),
    "year": ("date", "timestamp"),
    "month": ("date", "timestamp"),
    "day": ("date", "timestamp"),
    "hour": ("timestamp",),
    "bucket": ("int32", "varchar", "date", "int64", "uint32", "timestamp"),
}
TEXTS = ["it's", "Ünï\n\t", "", '"quoted"', "😀"]
OPTIONS: dict[str, list[Any]] = {
    "parquet_compression": ["zstd", "snappy"],
    "parquet_row_group_size": [64000, 100000],
    "target_file_size": ["128MB", "1GB"],
    "hive_file_pattern": [False, True],
    "delete_older_than": ["1 week"],
    "rewrite_delete_threshold": [0.5],
    "auto_compact": [True, False],
}


@dataclass(frozen=True)
class Change:
    """One change; ``is_option`` ones happen outside transactions, ``is_alone`` ones in their own."""

    kind: str
    ours: Callable[[OurLake], object]
    sql: tuple[str, ...]
    is_option: bool = False
    is_alone: bool = False


@dataclass
class Drawn:
    """What the transaction under construction has done already, which limits what may follow."""

    took_id: bool = False  # the reference numbers several new objects in the order of a hash
    filled: set[Table] = field(default_factory=set)
    shortened: set[Table] = field(default_factory=set)
    created: set[object] = field(default_factory=set)
    renamed: set[Table | View] = field(default_factory=set)
    changed: set[Table | View] = field(default_factory=set)
    settled: set[object] = field(default_factory=set)  # ours drops what is undone, the reference does not
    unkeyed: set[object] = field(default_factory=set)  # the reference crashes when it adds rows then
    sorted: set[object] = field(default_factory=set)  # each more takes an id there


def call(method: str, *arguments: object, **options: object) -> Callable[[OurLake], object]:
    return lambda twin: getattr(twin.tx, method)(*arguments, **options)


def literal(text: str | None) -> str:
    return "NULL" if text is None else "'" + text.replace("'", "''") + "'"


Drawer = Callable[["Changes"], Change | None]
KINDS: dict[str, Drawer] = {}


def kind(name: str) -> Callable[[Drawer], Drawer]:
    def register(drawer: Drawer) -> Drawer:
        KINDS[name] = drawer
        return drawer

    return register


class Changes:
    """Draws transactions; the kinds drawn least so far come first."""

    sizes = (1, 1, 2, 4)  # of a transaction, each as likely

    def __init__(self, random_: random.Random, counts: Counter[str]) -> None:
        self.random = random_
        self.counts = counts
        self.lake = Lake()
        self.values = Values(random_)
        self.so_far = Drawn()
        self.kind = ""
        self.kinds: Collection[str] = KINDS
        self.first_only = FIRST_ONLY

    def transaction(self) -> list[Change]:
        """Return the changes of the next transaction."""
        for one in self.so_far.changed | self.so_far.renamed:
            one.was_altered = True
        self.so_far = Drawn()
        changes: list[Change] = []
        for _ in range(self.random.choice(self.sizes)):
            change = self._change(is_first=not changes)
            if change is None:
                break
            changes.append(change)
            if change.is_option or change.is_alone:
                break
        return changes

    def _change(self, *, is_first: bool) -> Change | None:
        """Draw a change of a kind that is possible; one that came half as often is four times as likely."""
        turns = {name: self.random.expovariate(1 / (1 + self.counts[name]) ** 2) for name in self.kinds}
        for name in sorted(turns, key=turns.__getitem__):
            self.kind = name
            if name in self.first_only and not is_first:
                continue
            if (change := KINDS[name](self)) is not None:
                self.counts[name] += 1
                return change
        return None

    def made(self, ours: Callable[[OurLake], object], *sql: str, is_option: bool = False) -> Change:
        return Change(self.kind, ours, sql, is_option)

    def one_of(self, candidates: list[Any]) -> Any:
        return self.random.choice(candidates) if candidates else None

    def alterable(self) -> list[Table]:
        """List the tables that may still change: rows come last in a transaction.

        And a table is altered once: of several alterations the reference forgets some.
        """
        so_far = self.so_far
        busy = so_far.filled | so_far.shortened | so_far.changed | so_far.renamed
        return [table for table in self.lake.tables if table not in busy]

    def reshapable(self) -> list[Table]:
        """List those whose layout may change: with inlining off we keep a registered one up to date."""
        return [one for one in self.alterable() if self.lake.limit(one) or not one.has_layout]

    def columns(
        self, fits: Callable[[Table, Column], bool], *, reshapes: bool = False
    ) -> list[tuple[Table, Column]]:
        return [
            (table, column)
            for table in (self.reshapable() if reshapes else self.alterable())
            for column in table.columns
            if column.name != ID and fits(table, column)
        ]

    def structs(self) -> list[tuple[Table, tuple[str, ...], Struct]]:
        return [(table, *found) for table in self.reshapable() for found in table.fields()]

    def may_take_id(self) -> bool:
        return not self.so_far.took_id


@kind("create schema")
def _create_schema(draw: Changes) -> Change | None:
    if not draw.may_take_id() or len(draw.lake.schemas) > 3:
        return None
    name = draw.values.name("s")
    draw.lake.schemas.append(name)
    draw.so_far.took_id = True
    draw.so_far.created.add(name)
    return draw.made(call("create_schema", name), f"CREATE SCHEMA {_quoted(name)}")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _held(draw: Changes, schema: str) -> list[Table | View]:
    held: list[Table | View] = [*draw.lake.tables, *draw.lake.views]
    return [one for one in held if one.schema == schema]


@kind("drop schema, empty")
def _drop_empty_schema(draw: Changes) -> Change | None:
    empty = [one for one in draw.lake.schemas[1:] if not _held(draw, one) and _is_untouched(draw, one)]
    if (name := draw.one_of(empty)) is None:
        return None
    draw.lake.schemas.remove(name)
    return draw.made(call("drop_schema", name), f"DROP SCHEMA {_quoted(name)}")


@kind("drop schema, cascade")
def _drop_schema(draw: Changes) -> Change | None:
    full = [one for one in draw.lake.schemas[1:] if _held(draw, one) and _is_untouched(draw, one)]
    if (name := draw.one_of(full)) is None:
        return None
    draw.lake.schemas.remove(name)
    draw.lake.tables = [one for one in draw.lake.tables if one.schema != name]
    draw.lake.views = [one for one in draw.lake.views if one.schema != name]
    return draw.made(call("drop_schema", name, cascade=True), f"DROP SCHEMA {_quoted(name)} CASCADE")


def _is_untouched(draw: Changes, schema: str) -> bool:
    so_far = draw.so_far
    touched = so_far.changed | so_far.created | so_far.filled | so_far.shortened | so_far.renamed
    return schema not in so_far.created and not any(one in touched for one in _held(draw, schema))


def _new_table(draw: Changes) -> Table:
    return Table(draw.random.choice(draw.lake.schemas), draw.values.name("t"), draw.values.columns())


def _creation(
    table: Table, draw: Changes, *, or_replace: bool = False
) -> tuple[Callable[[OurLake], object], str]:
    columns = {one.name: ours(one.type) for one in table.columns}
    defaults: dict[str, SqlDefault] = {}
    parts = []
    for column in table.columns:
        text = f"{column.sql} {sql(column.type)}"
        column.is_required = column.is_null_free and draw.random.random() < 0.2
        default = draw.values.default(column.type) if draw.random.random() < 0.2 else None
        if default is not None:
            column.default, column.has_initial_default = default[0], True
            defaults[column.name] = default[1]
            text += f" DEFAULT {default[0]}"
        parts.append(text + (" NOT NULL" if column.is_required else ""))
    required = [one.name for one in table.columns if one.is_required]
    create = call(
        "create_table", table.qualified, columns, not_null=required, defaults=defaults, or_replace=or_replace
    )
    words = "CREATE OR REPLACE" if or_replace else "CREATE"
    return create, f"{words} TABLE {table.sql} ({', '.join(parts)})"


def _add_table(draw: Changes, table: Table) -> None:
    draw.lake.tables.append(table)
    table.has_layout = draw.lake.limit(table) > 0
    draw.so_far.took_id = True
    draw.so_far.created.add(table)


@kind("create table")
def _create_table(draw: Changes) -> Change | None:
    if not draw.may_take_id() or len(draw.lake.tables) > 5:
        return None
    table = _new_table(draw)
    _add_table(draw, table)
    return draw.made(*_creation(table, draw))


@kind("create table with keys, and fill it")
def _create_and_fill(draw: Changes) -> Change | None:
    if not draw.may_take_id() or len(draw.lake.tables) > 5:
        return None
    table = _new_table(draw)
    table.columns.append(Column("key", "varchar"))
    table.partition, table.sort = [table.columns[-1]], [table.columns[0]]
    _add_table(draw, table)
    create, text = _creation(table, draw)
    added, rows = _rows(draw, table, draw.random.choice([2, MOST_ROWS]))

    def run(twin: OurLake) -> None:
        create(twin)
        twin.tx.set_partitioned_by(table_name, ["key"])
        twin.tx.set_sorted_by(table_name, ["id"])
        rows(twin)

    table_name = table.qualified
    return draw.made(
        run,
        text,
        f"ALTER TABLE {table.sql} SET PARTITIONED BY (key)",
        f"ALTER TABLE {table.sql} SET SORTED BY (id)",
        added,
    )


@kind("replace table")
def _replace_table(draw: Changes) -> Change | None:
    old = [table for table in draw.lake.tables if not _is_touched(draw, table)]
    if not draw.may_take_id() or (table := draw.one_of(old)) is None:
        return None
    draw.lake.tables.remove(table)
    new = Table(table.schema, table.name, draw.values.columns())
    _add_table(draw, new)
    return draw.made(*_creation(new, draw, or_replace=True))


def _is_touched(draw: Changes, one: object) -> bool:
    so_far = draw.so_far
    return one in so_far.created | so_far.changed | so_far.renamed | so_far.filled | so_far.shortened


@kind("rename table")
def _rename_table(draw: Changes) -> Change | None:
    """Rename first: the reference loses what was set before in the same transaction."""
    candidates = [one for one in draw.reshapable() if not _is_touched(draw, one)]
    if (table := draw.one_of(candidates)) is None:
        return None
    before, old, new = table.qualified, table.sql, draw.values.name("t")
    table.name = new
    draw.so_far.renamed.add(table)
    return draw.made(call("rename_table", before, new), f"ALTER TABLE {old} RENAME TO {_quoted(new)}")


@kind("drop table")
def _drop_table(draw: Changes) -> Change | None:
    if (table := draw.one_of([one for one in draw.lake.tables if not _is_touched(draw, one)])) is None:
        return None
    draw.lake.tables.remove(table)
    return draw.made(call("drop_table", table.qualified), f"DROP TABLE {table.sql}")


@kind("create view")
def _create_view(draw: Changes) -> Change | None:
    if not draw.may_take_id() or len(draw.lake.views) > 3:
        return None
    view = View(draw.random.choice(draw.lake.schemas), draw.values.name("v"))
    draw.lake.views.append(view)
    draw.so_far.took_id = True
    draw.so_far.created.add(view)
    return draw.made(
        call("create_view", view.qualified, "SELECT 1 AS a"), f"CREATE VIEW {view.sql} AS SELECT 1 AS a"
    )


def _old_view(draw: Changes) -> View | None:
    return draw.one_of([one for one in draw.lake.views if not _is_touched(draw, one)])


@kind("replace view")
def _replace_view(draw: Changes) -> Change | None:
    if not draw.may_take_id() or (view := _old_view(draw)) is None:
        return None
    draw.so_far.took_id = True
    draw.so_far.created.add(view)
    return draw.made(
        call("create_view", view.qualified, "SELECT 2, 3", column_aliases=["p", "q r"], or_replace=True),
        f'CREATE OR REPLACE VIEW {view.sql}(p, "q r") AS SELECT 2, 3',
    )


@kind("rename view")
def _rename_view(draw: Changes) -> Change | None:
    if (view := _old_view(draw)) is None:
        return None
    before, old, new = view.qualified, view.sql, draw.values.name("v")
    view.name = new
    draw.so_far.renamed.add(view)
    return draw.made(call("rename_view", before, new), f"ALTER VIEW {old} RENAME TO {_quoted(new)}")


@kind("drop view")
def _drop_view(draw: Changes) -> Change | None:
    if (view := _old_view(draw)) is None:
        return None
    draw.lake.views.remove(view)
    return draw.made(call("drop_view", view.qualified), f"DROP VIEW {view.sql}")


def _text(draw: Changes) -> str | None:
    return draw.random.choice([*TEXTS, None])


@kind("comment on view")
def _comment_on_view(draw: Changes) -> Change | None:
    if (view := draw.one_of(draw.lake.views)) is None:
        return None
    text = _text(draw)
    draw.so_far.changed.add(view)
    return draw.made(
        call("comment_on_view", view.qualified, text), f"COMMENT ON VIEW {view.sql} IS {literal(text)}"
    )


@kind("comment on table")
def _comment_on_table(draw: Changes) -> Change | None:
    if (table := draw.one_of(draw.alterable())) is None:
        return None
    text = _text(draw)
    draw.so_far.changed.add(table)
    return draw.made(
        call("comment_on_table", table.qualified, text), f"COMMENT ON TABLE {table.sql} IS {literal(text)}"
    )


def _on_column(
    draw: Changes, table: Table, column: Column, method: str, text: str, *arguments: object
) -> Change:
    """Return ``ALTER TABLE … ALTER COLUMN … <text>``."""
    draw.so_far.changed.add(table)
    return draw.made(
        call(method, table.qualified, column.sql, *arguments),
        f"ALTER TABLE {table.sql} ALTER COLUMN {column.sql} {text}",
    )


@kind("comment on column")
def _comment_on_column(draw: Changes) -> Change | None:
    if (found := draw.one_of(draw.columns(lambda _table, _column: True))) is None:
        return None
    table, column = found
    text = _text(draw)
    draw.so_far.changed.add(table)
    draw.so_far.settled.add(column)
    return draw.made(
        call("comment_on_column", table.qualified, column.sql, text),
        f"COMMENT ON COLUMN {table.sql}.{column.sql} IS {literal(text)}",
    )


@kind("add column")
def _add_column(draw: Changes) -> Change | None:
    return _added(draw, draw.values.column(), "", None)


@kind("add column with default")
def _add_column_with_default(draw: Changes) -> Change | None:
    column = draw.values.column(nested=False)
    if (default := draw.values.default(column.type)) is None:
        return None
    column.default, column.has_initial_default = default[0], True
    return _added(draw, column, f" DEFAULT {default[0]}", default[1])


def _added(draw: Changes, column: Column, text: str, default: SqlDefault | None) -> Change | None:
    if (table := draw.one_of(draw.reshapable())) is None:
        return None
    column.is_null_free &= not table.had_rows
    draw.so_far.settled.add(column)
    table.columns.append(column)
    draw.so_far.changed.add(table)
    return draw.made(
        call("add_column", table.qualified, column.sql, ours(column.type), default),
        f"ALTER TABLE {table.sql} ADD COLUMN {column.sql} {sql(column.type)}{text}",
    )


@kind("drop column")
def _drop_column(draw: Changes) -> Change | None:
    candidates = draw.columns(
        lambda table, one: one not in {*table.partition, *table.sort, *draw.so_far.settled}, reshapes=True
    )
    if (found := draw.one_of(candidates)) is None:
        return None
    table, column = found
    table.columns.remove(column)
    draw.so_far.changed.add(table)
    return draw.made(
        call("drop_column", table.qualified, column.sql), f"ALTER TABLE {table.sql} DROP COLUMN {column.sql}"
    )


@kind("rename column")
def _rename_column(draw: Changes) -> Change | None:
    """Of a sorted table rename a key: of another column the reference burns an id."""
    candidates = draw.columns(
        lambda table, one: not table.sort or (one in table.sort and draw.may_take_id()), reshapes=True
    )
    if (found := draw.one_of(candidates)) is None:
        return None
    table, column = found
    before, new = column.sql, draw.values.name("c")
    column.name = new
    table.sort_key = table.sort_key.replace(before, column.sql)
    table.partition_key = table.partition_key.replace(before, column.sql)
    if column in table.sort:
        draw.so_far.took_id = True
        draw.so_far.sorted.add(table)
    draw.so_far.changed.add(table)
    return draw.made(
        call("rename_column", table.qualified, before, new),
        f"ALTER TABLE {table.sql} RENAME COLUMN {before} TO {column.sql}",
    )


@kind("add field")
def _add_field(draw: Changes) -> Change | None:
    if (found := draw.one_of(draw.structs())) is None:
        return None
    table, path, struct = found
    added = draw.values.field()
    struct.fields.append(added)
    draw.so_far.settled.add(added)
    draw.so_far.changed.add(table)
    name = ".".join((*path, added.name))
    return draw.made(
        call("add_column", table.qualified, name, ours(added.type)),
        f"ALTER TABLE {table.sql} ADD COLUMN {name} {sql(added.type)}",
    )


@kind("drop field")
def _drop_field(draw: Changes) -> Change | None:
    """Take a column that exists: of one made by the transaction the reference keeps the field."""
    new = draw.so_far.settled
    candidates = [
        (table, path, struct, dropped)
        for table, path, struct in draw.structs()
        if table not in draw.so_far.created
        and not any(one.sql == path[0] and one in new for one in table.columns)
        for dropped in struct.fields
        if len(struct.fields) > 1 and dropped not in new
    ]
    if (found := draw.one_of(candidates)) is None:
        return None
    table, path, struct, dropped = found
    struct.fields.remove(dropped)
    draw.so_far.changed.add(table)
    name = ".".join((*path, dropped.name))
    return draw.made(
        call("drop_column", table.qualified, name), f"ALTER TABLE {table.sql} DROP COLUMN {name}"
    )


@kind("rename field")
def _rename_field(draw: Changes) -> Change | None:
    """Take a table that exists: of one made by the transaction the reference keeps the old name too."""
    candidates = [one for one in draw.structs() if one[0] not in draw.so_far.created]
    if (found := draw.one_of(candidates)) is None:
        return None
    table, path, struct = found
    renamed = draw.random.choice(struct.fields)
    before = ".".join((*path, renamed.name))
    renamed.name = draw.values.field().name
    draw.so_far.changed.add(table)
    return draw.made(
        call("rename_column", table.qualified, before, renamed.name),
        f"ALTER TABLE {table.sql} RENAME COLUMN {before} TO {renamed.name}",
    )


@kind("widen column")
def _widen_column(draw: Changes) -> Change | None:
    candidates = draw.columns(
        lambda table, one: (
            one.type in WIDER
            and not one.has_initial_default
            and one not in table.partition
            and table not in draw.so_far.created
        ),
        reshapes=True,
    )
    if (found := draw.one_of(candidates)) is None:
        return None
    table, column = found
    column.type = draw.random.choice(WIDER[column.type])
    return _on_column(draw, table, column, "set_column_type", f"TYPE {sql(column.type)}", ours(column.type))


@kind("widen field")
def _widen_field(draw: Changes) -> Change | None:
    candidates = [
        (table, column, one)
        for table, column in draw.columns(
            lambda _, one: isinstance(one.type, Struct) and "[]" not in one.type.sql, reshapes=True
        )
        for one in column.type.fields
        if one.type in WIDER
    ]
    if (found := draw.one_of(candidates)) is None:
        return None
    table, column, widened = found
    widened.type = draw.random.choice(WIDER[widened.type])
    draw.so_far.changed.add(table)
    return draw.made(
        call("set_column_type", table.qualified, f"{column.sql}.{widened.name}", ours(widened.type)),
        f"ALTER TABLE {table.sql} ALTER COLUMN {column.sql} TYPE {sql(column.type)}",
    )


@kind("set default, literal")
def _set_default(draw: Changes) -> Change | None:
    candidates = draw.columns(lambda _, one: draw.values.default(one.type) is not None)
    if (found := draw.one_of(candidates)) is None:
        return None
    table, column = found
    text, value = draw.values.default(column.type)
    if text == column.default or column in draw.so_far.settled:
        return None  # ours changes nothing then, the reference does
    column.default = text
    draw.so_far.settled.add(column)
    return _on_column(draw, table, column, "set_default", f"SET DEFAULT {text}", value)


@kind("set default, expression")
def _set_expression(draw: Changes) -> Change | None:
    """Take a table without rows, and do nothing else: else the reference refuses expressions, or crashes."""
    candidates = draw.columns(
        lambda table, one: (
            draw.values.expression(one.type) is not None
            and not (
                one.default
                or table.was_altered
                or one.has_initial_default
                or one.is_required
                or table.had_rows
                or _is_touched(draw, table)
            )
        )
    )
    if (found := draw.one_of(candidates)) is None:
        return None
    table, column = found
    value = draw.values.expression(column.type)
    column.default = value.text
    change = _on_column(draw, table, column, "set_default", f"SET DEFAULT {value.text}", value)
    return replace(change, is_alone=True)


@kind("drop default")
def _drop_default(draw: Changes) -> Change | None:
    if (
        found := draw.one_of(
            draw.columns(lambda _, one: one.default != "" and one not in draw.so_far.settled)
        )
    ) is None:
        return None
    table, column = found
    column.default = ""
    draw.so_far.settled.add(column)
    return _on_column(draw, table, column, "drop_default", "DROP DEFAULT")


@kind("set NOT NULL")
def _set_not_null(draw: Changes) -> Change | None:
    candidates = draw.columns(
        lambda table, one: (
            one.is_null_free
            and one.type != "variant"  # of which the reference counts no NULLs
            and not one.is_required
            and one not in draw.so_far.settled
            and table.had_rows
            and not _is_touched(draw, table)
        )
    )
    if (found := draw.one_of(candidates)) is None:
        return None
    table, column = found
    column.is_required = True
    draw.so_far.settled.add(column)
    return _on_column(draw, table, column, "set_not_null", "SET NOT NULL")


@kind("drop NOT NULL")
def _drop_not_null(draw: Changes) -> Change | None:
    if (
        found := draw.one_of(draw.columns(lambda _, one: one.is_required and one not in draw.so_far.settled))
    ) is None:
        return None
    table, column = found
    column.is_required = False
    draw.so_far.settled.add(column)
    return _on_column(draw, table, column, "drop_not_null", "DROP NOT NULL")


def _partition_drawer(transform: str) -> Drawer:
    def drawer(draw: Changes) -> Change | None:
        types = TRANSFORMS[transform]
        candidates = draw.columns(
            lambda table, one: one.type in types and table not in draw.so_far.created, reshapes=True
        )
        if not draw.may_take_id() or (found := draw.one_of(candidates)) is None:
            return None
        table, column = found
        keys = {"identity": column.sql, "bucket": f"bucket(4, {column.sql})"}
        key = keys.get(transform, f"{transform}({column.sql})")
        if table.partition_key == key:
            return None
        table.partition, table.partition_key = [column], key
        draw.so_far.took_id = True
        draw.so_far.changed.add(table)
        return draw.made(
            call("set_partitioned_by", table.qualified, [key]),
            f"ALTER TABLE {table.sql} SET PARTITIONED BY ({key})",
        )

    return drawer


for _transform in TRANSFORMS:
    KINDS[f"partition by {_transform}"] = _partition_drawer(_transform)


@kind("reset partitioning")
def _reset_partitioning(draw: Changes) -> Change | None:
    candidates = [one for one in draw.reshapable() if one.partition and one not in draw.so_far.created]
    if not draw.may_take_id() or (table := draw.one_of(candidates)) is None:
        return None
    table.partition, table.partition_key = [], ""
    draw.so_far.unkeyed.add(table)
    draw.so_far.took_id = True
    draw.so_far.changed.add(table)
    return draw.made(
        call("set_partitioned_by", table.qualified, []), f"ALTER TABLE {table.sql} RESET PARTITIONED BY"
    )


@kind("set sort keys")
def _set_sort(draw: Changes) -> Change | None:
    """Sort by the growing ids first: with inlining on the reference sorts, ``sort_on_insert`` or not."""
    candidates = draw.columns(
        lambda table, one: isinstance(one.type, str) and table not in draw.so_far.created
    )
    if not draw.may_take_id() or (found := draw.one_of(candidates)) is None:
        return None
    table, column = found
    key = column.sql + draw.random.choice(["", " DESC", " ASC NULLS FIRST", " DESC NULLS FIRST"])
    if table.sort_key == key:
        return None
    table.sort, table.sort_key = [table.columns[0], column], key
    draw.so_far.took_id = True
    draw.so_far.changed.add(table)
    draw.so_far.sorted.add(table)
    return draw.made(
        call("set_sorted_by", table.qualified, [ID, key]),
        f"ALTER TABLE {table.sql} SET SORTED BY ({ID}, {key})",
    )


@kind("reset sort keys")
def _reset_sort(draw: Changes) -> Change | None:
    busy = draw.so_far.created | draw.so_far.sorted
    candidates = [one for one in draw.alterable() if one.sort and one not in busy]
    if (table := draw.one_of(candidates)) is None:
        return None
    table.sort, table.sort_key = [], ""
    draw.so_far.changed.add(table)
    return draw.made(call("set_sorted_by", table.qualified, []), f"ALTER TABLE {table.sql} RESET SORTED BY")


@kind("option, global")
def _global_option(draw: Changes) -> Change | None:
    return _option(draw, {}, "")


@kind("option of a schema")
def _schema_option(draw: Changes) -> Change | None:
    schema = draw.random.choice(draw.lake.schemas)
    return _option(draw, {"schema": schema}, f", schema => {literal(schema)}")


@kind("option of a table")
def _table_option(draw: Changes) -> Change | None:
    if (table := draw.one_of(draw.lake.tables)) is None:
        return None
    return _option(draw, {"table": table.qualified}, _of_table(table))


def _of_table(table: Table) -> str:
    return f", schema => {literal(table.schema)}, table_name => {literal(table.name)}"


def _option(draw: Changes, scope: dict[str, object], given: str) -> Change:
    key = draw.random.choice(list(OPTIONS))
    return _setting(draw, key, draw.random.choice(OPTIONS[key]), scope, given)


def _setting(draw: Changes, key: str, value: object, scope: dict[str, object], given: str) -> Change:
    shown = literal(value) if isinstance(value, str) else value
    return draw.made(
        lambda twin: twin.lake.set_option(key, value, **scope),
        f"CALL lake.set_option({literal(key)}, {shown}{given})",
        is_option=True,
    )


@kind("option of a table: inlining")
def _inlining(draw: Changes) -> Change | None:
    if (table := draw.one_of(draw.lake.tables)) is None:
        return None
    limit = 0 if draw.lake.limit(table) else draw.random.choice([3, 10])
    draw.lake.limits[table] = limit
    table.has_layout |= limit > 0
    return _setting(draw, "data_inlining_row_limit", limit, {"table": table.qualified}, _of_table(table))


def _rows(draw: Changes, table: Table, count: int) -> tuple[str, Callable[[OurLake], object]]:
    """Return the SQL and the call that add rows."""
    ids, query = draw.values.rows(table, count)
    batch = None if count <= draw.lake.limit(table) and table.is_inlinable else Batch()
    table.live.update(dict.fromkeys(ids, batch))
    table.had_rows = True
    draw.so_far.filled.add(table)
    name = table.qualified
    parts = [
        f"variant_to_parquet_variant({one.sql}) AS {one.sql}"
        for one in table.columns
        if one.type == "variant"
    ]
    stars = f"* REPLACE ({', '.join(parts)})" if parts else "*"  # DuckDB has no Arrow of variants
    return (
        f"INSERT INTO {table.sql} {query}",
        lambda twin: twin.tx.append_arrow(name, twin.reference.arrow(f"SELECT {stars} FROM ({query})")),
    )


def _fillable(draw: Changes, *, inlined: bool) -> Table | None:
    busy = draw.so_far.filled | draw.so_far.unkeyed
    tables = [one for one in draw.lake.tables if one not in busy]
    return draw.one_of([one for one in tables if not inlined or (draw.lake.limit(one) and one.is_inlinable)])


@kind("append Parquet files")
def _append(draw: Changes) -> Change | None:
    if (table := _fillable(draw, inlined=False)) is None:
        return None
    sql_, ours_ = _rows(draw, table, draw.random.randint(draw.lake.limit(table) + 1, MOST_ROWS))
    return draw.made(ours_, sql_)


@kind("append inlined rows")
def _append_inlined(draw: Changes) -> Change | None:
    if (table := _fillable(draw, inlined=True)) is None:
        return None
    sql_, ours_ = _rows(draw, table, draw.random.randint(1, draw.lake.limit(table)))
    return draw.made(ours_, sql_)


def _shortenable(draw: Changes) -> list[Table]:
    so_far = draw.so_far
    busy = so_far.created | so_far.renamed | so_far.filled | so_far.shortened
    return [one for one in draw.lake.tables if one not in busy and one.live]


def _delete(draw: Changes, table: Table, ids: list[int]) -> Change:
    for one in ids:
        del table.live[one]
    draw.so_far.shortened.add(table)
    name, chosen = table.qualified, frozenset(ids)
    return draw.made(
        lambda twin: twin.delete(name, chosen),
        f"DELETE FROM {table.sql} WHERE {ID} IN ({', '.join(map(str, ids))})",
    )


def _inlined(table: Table) -> list[int]:
    return [one for one, batch in table.live.items() if batch is None]


def _some(draw: Changes, rows: list[int], low: int, high: int) -> list[int]:
    return draw.random.sample(rows, draw.random.randint(low, min(high, len(rows))))


@kind("delete inlined rows")
def _delete_inlined(draw: Changes) -> Change | None:
    if (table := draw.one_of([one for one in _shortenable(draw) if _inlined(one)])) is None:
        return None
    return _delete(draw, table, _some(draw, _inlined(table), 1, 4))


def _files(draw: Changes, deletes: str, least: Callable[[Table], int]) -> list[tuple[Table, list[int]]]:
    """List files with at least so many live rows, whose deletes so far are where new ones will be."""
    found = []
    for table in _shortenable(draw):
        for batch in {one for one in table.live.values() if one is not None}:
            rows = [one for one, own in table.live.items() if own is batch]
            if batch.deletes in {"", deletes} and len(rows) >= least(table):
                found.append((table, rows))
    return found


@kind("delete rows of files, inlined")
def _delete_marked(draw: Changes) -> Change | None:
    """Leave a row: of a file without any the reference keeps the marks, we end the file."""
    candidates = [one for one in _files(draw, "marks", lambda _: 2) if draw.lake.limit(one[0])]
    if (found := draw.one_of(candidates)) is None:
        return None
    table, rows = found
    table.live[rows[0]].deletes = "marks"
    ids = _some(draw, rows, 1, min(len(rows) - 1, draw.lake.limit(table)))
    return _delete(draw, table, ids + (_some(draw, _inlined(table), 0, 2) if _inlined(table) else []))


@kind("delete rows of files, delete file")
def _delete_in_file(draw: Changes) -> Change | None:
    candidates = _files(draw, "delete file", lambda table: draw.lake.limit(table) + 1)
    if (found := draw.one_of(candidates)) is None:
        return None
    table, rows = found
    table.live[rows[0]].deletes = "delete file"
    return _delete(draw, table, _some(draw, rows, draw.lake.limit(table) + 1, len(rows)))


def _emptiable(draw: Changes) -> list[Table]:
    """List tables whose rows can all go: of small files, or with marks, the reference marks all rows."""
    return [
        one
        for one in _shortenable(draw)
        if len(_inlined(one)) == len(one.live)
        or (
            not draw.lake.limit(one) and all(batch.deletes != "marks" for batch in one.live.values() if batch)
        )
    ]


@kind("delete all rows")
def _delete_all(draw: Changes) -> Change | None:
    """Take all, which needs no delete files: those of several files the reference numbers by a hash."""
    if (table := draw.one_of(_emptiable(draw))) is None:
        return None
    return _delete(draw, table, list(table.live))


@kind("truncate")
def _truncate(draw: Changes) -> Change | None:
    if (table := draw.one_of(_emptiable(draw))) is None:
        return None
    table.live.clear()
    draw.so_far.shortened.add(table)
    return draw.made(call("truncate", table.qualified), f"TRUNCATE {table.sql}")


FIRST_ONLY = {name for name in KINDS if name.startswith("option")} | {"set default, expression"}
