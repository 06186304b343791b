"""The scale models are valid lakes, and on a larger one no call takes more statements."""

import re
from contextlib import closing
from dataclasses import replace

import psycopg
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from tests.reference.duckdb_lake import open_lake
from tests.reference.postgres import libpq
from tests.scale.calls import CALLS, FOUND, Target
from tests.scale.fill import analyze
from tests.scale.models import DIRECTIONS, EVERYTHING, TABLE, Model, make
from tests.scale.statements import statements, transactions

pytestmark = pytest.mark.databases

SMALL, LARGE = 3, 12


def test_a_model_is_a_valid_lake_that_duckdb_reads(new_catalog, catalog_kind):
    catalog = new_catalog(catalog_kind)
    make(Model(catalog, EVERYTHING, SMALL))

    with Lake.connect(catalog.sqlalchemy_url) as lake:
        assert lake.verify(sample=0) == []
        assert lake.read_arrow(TABLE, filter=FOUND).num_rows == 1
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
EXPLAINED = ("SELECT", "UPDATE", "DELETE")


def test_postgres_looks_for_no_file_among_all_files(postgres_catalog):
    """A set that does not fit into its memory it reads again for each row; so those that are large get more.

    Each query is explained within what its transaction has set until then.
    """
    model = Model(postgres_catalog, DIRECTIONS["files"], FILES)
    make(model)
    analyze(postgres_catalog)
    server = libpq(int(postgres_catalog.server["port"]), postgres_catalog.database)
    explained, slow = 0, {}
    with (
        Lake.connect(postgres_catalog.sqlalchemy_url) as lake,
        psycopg.connect(server, autocommit=True) as connection,
    ):
        connection.execute(f"SET work_mem = '{FEW_KILOBYTES}kB'")
        for call in CALLS:
            target = replace(Target.of(lake, model), many=3)
            with transactions() as sent:
                call.run(target)
            for texts in sent:
                with connection.transaction(force_rollback=True):
                    for text in texts:
                        if text.startswith("SET LOCAL"):
                            connection.execute(text)
                        elif text.lstrip().startswith(EXPLAINED):
                            explained += 1
                            if _reads_again(connection, text):
                                slow[call.name] = text

    assert explained > len(CALLS)
    assert slow == {}


def _reads_again(connection: psycopg.Connection, question: str) -> bool:
    try:
        with connection.transaction(force_rollback=True):
            rows = connection.execute(f"EXPLAIN {question}").fetchall()
    except psycopg.errors.UndefinedTable:  # it was dropped since
        return False
    return re.search(r"\b(ANY|ALL) \(.*\(SubPlan", "\n".join(row[0] for row in rows)) is not None
