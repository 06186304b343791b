"""The scale models are valid lakes, and on a larger one no call takes more statements."""

import re
from contextlib import closing
from dataclasses import replace

import psycopg

from airflow_provider_ducklake.catalog.lake import Lake
from tests.reference.duckdb_lake import open_lake
from tests.reference.postgres import libpq
from tests.scale.calls import CALLS, FOUND, Target
from tests.scale.fill import analyze
from tests.scale.models import DIRECTIONS, EVERYTHING, TABLE, Model, make
from tests.scale.statements import questions, statements

SMALL, LARGE = 3, 12


def test_a_model_is_a_valid_lake_that_duckdb_reads(new_catalog, catalog_kind):
    catalog = new_catalog(catalog_kind)
    make(Model(catalog, EVERYTHING, SMALL))

    with Lake.connect(catalog.sqlalchemy_url) as lake:
        assert lake.verify(sample=0) == []
        assert lake.read_arrow(TABLE, where=FOUND).num_rows == 1
    with closing(open_lake(catalog.attach_string)) as reference:
        assert reference.sql(f"SELECT count(*) FROM {TABLE} WHERE {FOUND}") == [(1,)]


def test_the_number_of_statements_does_not_grow_with_a_lake(new_catalog, catalog_kind):
    small, large = (
        _statement_counts(Model(new_catalog(catalog_kind), EVERYTHING, size)) for size in (SMALL, LARGE)
    )

    assert large == small


def _statement_counts(model: Model) -> dict[str, int]:
    make(model)
    counts = {}
    with Lake.connect(model.catalog.sqlalchemy_url) as lake:
        lake.current_snapshot()  # which opens the connection
        for call in CALLS:
            target = replace(Target.of(lake, model), many=3)
            with statements() as sent:
                call.run(target)
            counts[call.name] = len(sent)
    return counts


FEW_KILOBYTES = 64  # the least; 12,000 files then are to it what 750,000 are with its usual 4 MB
FILES = 12_000


def test_postgres_looks_for_no_file_among_all_files(postgres_catalog):
    """Where a set of files does not fit into its memory, it reads ``IN (SELECT …)`` again for each row.

    Not so where it can join, which it cannot with ``NOT IN``, nor below ``OR``.
    """
    model = Model(postgres_catalog, DIRECTIONS["files"], FILES)
    make(model)
    analyze(postgres_catalog)
    asked: dict[str, str] = {}
    with Lake.connect(postgres_catalog.sqlalchemy_url) as lake:
        for call in CALLS:
            with questions() as sent:
                call.run(replace(Target.of(lake, model), many=3))
            asked |= dict.fromkeys(sent, call.name)

    server = libpq(int(postgres_catalog.server["port"]), postgres_catalog.database)
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"SET work_mem = '{FEW_KILOBYTES}kB'")
        slow = {name: text for text, name in asked.items() if _reads_again(connection, text)}

    assert len(asked) > len(CALLS)
    assert slow == {}


def _reads_again(connection: psycopg.Connection, question: str) -> bool:
    plan = "\n".join(row[0] for row in connection.execute(f"EXPLAIN {question}").fetchall())
    return re.search(r"\b(ANY|ALL) \(.*\(SubPlan", plan) is not None
