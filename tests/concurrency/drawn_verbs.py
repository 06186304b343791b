"""Verbs and statements with drawn conditions, keys and rows: what meets in some pairs and not in others."""

import random
from collections.abc import Callable
from dataclasses import dataclass

import duckdb

from airflow_provider_ducklake.operators.delete import DuckLakeSparkDeleteOperator
from airflow_provider_ducklake.operators.update import DuckLakeSparkUpdateOperator
from tests.concurrency.serial_model import sql
from tests.concurrency.verbs import (
    INSERTS,
    MERGE,
    NEW_ROW,
    STATEMENTS,
    UPDATE,
    VERBS,
    Statement,
    Verb,
    insert,
    merge,
    query,
    row_change,
    transaction,
)

PARTS = ("'a'", "'b'", "'c'", "'z'", "NULL")
UPKEEP = ("flush", "merge files", "rewrite files", "merge_adjacent", "rewrite")
LAYOUTS = (("part",), ("part",), ("bucket(4, id)",), ("part", "bucket(3, id)"), ())


@dataclass(frozen=True)
class Condition:
    """A condition, and a query for rows that satisfy it."""

    text: str
    rows: str


def rows_of(ids: list[int], part: str, n: int) -> str:
    values = ", ".join(f"({one})" for one in ids)
    return f"SELECT id::BIGINT AS id, {n}::INTEGER AS n, {part}::VARCHAR AS part FROM (VALUES {values}) v(id)"


def draw_ids(draw: random.Random, low: int = 0, high: int = 200) -> list[int]:
    """Return keys, many or few, that lie together or not, some of them in the table."""
    first = draw.randrange(low, high)
    step = draw.choice([1, 1, 3, 17])
    return [first + step * one for one in range(draw.choice([1, 3, 5, 25]))]


def draw_condition(draw: random.Random) -> Condition:
    part, n = draw.choice(PARTS), draw.randrange(200)
    ids = sorted(draw_ids(draw))
    of_part = "part IS NULL" if part == "NULL" else f"part = {part}"
    between = f"id BETWEEN {ids[0]} AND {ids[-1]}"
    return draw.choice(
        [
            Condition(of_part, rows_of(ids, part, n)),
            Condition(of_part, rows_of(ids, part, n)),
            Condition(between, rows_of(ids, part, n)),
            Condition(f"{of_part} AND {between}", rows_of(ids, part, n)),
            Condition(f"id IN ({', '.join(map(str, ids))})", rows_of(ids, part, n)),
            Condition(f"n >= {n}", rows_of(ids, part, n)),
            Condition(f"{of_part} AND n < 70", rows_of(ids, part, 3)),
            Condition("part IN ('a', 'z')", rows_of(ids, draw.choice(["'a'", "'z'"]), n)),
        ]
    )


def draw_verb(draw: random.Random, layout: tuple[str, ...]) -> Verb:
    """Return one of ours."""
    makers: list[Callable[[random.Random], Verb]] = [_delete, _update, _overwrite, _overwrite, _merge, _merge]
    makers += [_append, _delete_rows, _replace_rows, _query, _newcomers]
    if layout == ("part",):
        makers += [_overwrite_partitions] * 2
    if draw.random() < 0.1:
        return draw.choice([one for one in VERBS if one.name in UPKEEP])
    return draw.choice(makers)(draw)


def draw_statement(draw: random.Random) -> Statement:
    """Return one of DuckDB's."""
    condition, part = draw_condition(draw), draw.choice(PARTS)
    values = draw.choice(["n = n + 1000", f"part = {part}"])
    made = [
        ("DELETE", f"DELETE FROM {{s}}.t WHERE {condition.text}"),
        ("UPDATE", f"UPDATE {{s}}.t SET {values} WHERE {condition.text}"),
        ("INSERT", f"INSERT INTO {{s}}.t {condition.rows}"),
        ("INSERT", f"INSERT INTO {{s}}.t {condition.rows}"),
        (
            "MERGE",
            f"{MERGE.format('{s}.t', condition.rows)} WHEN MATCHED THEN UPDATE SET n = source.n {INSERTS}",
        ),
    ]
    if draw.random() < 0.15:
        return draw.choice([one for one in STATEMENTS if one.name in UPKEEP])
    name, text = draw.choice(made)
    return Statement(f"{name}: {text}", text)


def _delete(draw: random.Random) -> Verb:
    where = draw_condition(draw).text
    model = f"DELETE FROM t WHERE {where}"
    return row_change(f"delete where {where}", DuckLakeSparkDeleteOperator, model, where=where)


def _update(draw: random.Random) -> Verb:
    where = draw_condition(draw).text
    name, value = draw.choice([("n", "n + 7"), ("part", draw.choice(PARTS))])
    model = f"UPDATE t SET {name} = {value} WHERE {where}"
    text = f"update {name} = {value} where {where}"
    return row_change(text, DuckLakeSparkUpdateOperator, model, set={name: value}, where=where)


def _overwrite(draw: random.Random) -> Verb:
    condition = draw_condition(draw)
    model = sql(f"DELETE FROM t WHERE {condition.text}", f"INSERT INTO t {condition.rows}")
    name = f"overwrite where {condition.text}"
    return insert(name, condition.rows, model, overwrite_where=condition.text)


def _overwrite_partitions(draw: random.Random) -> Verb:
    part = draw.choice(PARTS)
    rows = rows_of(draw_ids(draw), part, draw.randrange(200))
    gone = "part IS NULL" if part == "NULL" else f"part = {part}"
    model = sql(f"DELETE FROM t WHERE {gone}", f"INSERT INTO t {rows}")
    return insert(f"overwrite partition {part}", rows, model, mode="overwrite_partitions")


def _merge(draw: random.Random) -> Verb:
    rows = rows_of(draw_ids(draw), draw.choice(PARTS), draw.randrange(200))
    matched = draw.choice(
        [None, ("UPDATE SET n = source.n", {"update": UPDATE}), ("DELETE", {"delete": True})]
    )
    inserts = matched is None or draw.random() < 0.5
    arguments: dict[str, object] = {}
    model = ""
    if matched is not None:
        condition = draw.choice([None, "source.n > target.n"])
        model += f" WHEN MATCHED{' AND ' + condition if condition else ''} THEN {matched[0]}"
        arguments["when_matched"] = [{"condition": condition, **matched[1]} if condition else matched[1]]
    if inserts:
        model += f" {INSERTS}"
        arguments["when_not_matched"] = [{"insert": NEW_ROW}]
    return merge(f"merge {rows}{model}", rows, model, **arguments)


def _append(draw: random.Random) -> Verb:
    rows = rows_of(draw_ids(draw), draw.choice(PARTS), draw.randrange(200))
    return insert(f"append {rows}", rows, sql(f"INSERT INTO t {rows}"))


def _query(draw: random.Random) -> Verb:
    where = draw_condition(draw).text
    return _inserted(f"SELECT id + 1000 AS id, n, part FROM {{t}} WHERE {where}")


def _newcomers(draw: random.Random) -> Verb:
    rows = rows_of(draw_ids(draw), draw.choice(PARTS), draw.randrange(200))
    known = f"SELECT id FROM {{t}} WHERE id IS NOT NULL AND {draw_condition(draw).text}"
    return _inserted(f"SELECT * FROM ({rows}) AS v WHERE v.id NOT IN ({known})")


def _inserted(text: str) -> Verb:
    name = f"insert {text.format(t='t')}"
    return query(
        name, f"INSERT INTO {{s}}.t {text.format(t='{s}.t')}", sql(f"INSERT INTO t {text.format(t='t')}")
    )


def _delete_rows(draw: random.Random) -> Verb:
    where = draw_condition(draw).text
    return transaction(
        f"delete_rows {where}",
        lambda tx, s: tx.delete_rows(f"{s}.t", where),
        sql(f"DELETE FROM t WHERE {where}"),
    )


def _replace_rows(draw: random.Random) -> Verb:
    condition = draw_condition(draw)
    rows = duckdb.sql(condition.rows).to_arrow_table()
    return transaction(
        f"delete_rows {condition.text} and append",
        lambda tx, s: (tx.delete_rows(f"{s}.t", condition.text), tx.append_arrow(f"{s}.t", rows)),
        sql(f"DELETE FROM t WHERE {condition.text}", f"INSERT INTO t {condition.rows}"),
    )
