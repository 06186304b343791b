"""The same SQL, run by us and by the reference, leaves equal catalogs."""

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from airflow_provider_ducklake.lake.catalog.drafting.ddl import apply_ddl
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.sql.duckdb.ddl import parse_ddl
from tests.differential.ddl_scenarios import DDL_SCENARIOS, NESTED
from tests.differential.scenarios import Scenario
from tests.differential.test_catalogs import compare
from tests.reference.duckdb_lake import DuckLakeConnection
from tests.unit.sql.accepted import ACCEPTED

# DuckDB takes a struct's type as a whole, we field by field.
OURS = {
    "ALTER TABLE n ALTER COLUMN s TYPE struct(w bigint, y struct(zz bigint, k varchar))": (
        "ALTER TABLE n ALTER COLUMN s.w TYPE bigint; ALTER TABLE n ALTER COLUMN s.y.zz TYPE bigint"
    )
}
# We keep a view's query and a macro's body as written; what the reference writes after an ALTER of a
# field: see ddl_scenarios.
_IGNORED = NESTED | {"ducklake_view.sql", "ducklake_macro_impl.sql"}


def _scenario(name: str, *texts: str) -> Scenario:
    return Scenario(name, lambda _lake, _reference: None, texts, _IGNORED)


EVERY = _scenario(
    "every statement that we read", *(text for text, _ in ACCEPTED if not text.startswith("TRUNCATE"))
)
QUOTED_KEYS = _scenario(
    "sort keys that need quotes",
    'CREATE TABLE t ("order" INT, "Day" INT, "Abc" INT, a INT)',
    'ALTER TABLE t SET SORTED BY ("order", "Day" DESC, "Abc", a)',
    'ALTER TABLE t RENAME COLUMN a TO "Year"',
    'ALTER TABLE t RENAME COLUMN "Day" TO "x y"',
)
EMPTY = _scenario("truncate an empty table", "CREATE TABLE t (a INT)", "TRUNCATE t")


@pytest.mark.parametrize(
    "scenario", [*DDL_SCENARIOS, EVERY, QUOTED_KEYS, EMPTY], ids=lambda scenario: scenario.name
)
def test_our_catalog_equals_the_references_after_the_same_sql(catalog, reference_catalog, scenario: Scenario):
    def ours(lake: Lake, reference: DuckLakeConnection) -> None:
        for texts in transactions(scenario.reference):
            run(lake, reference, texts)

    compare(catalog, reference_catalog, replace(scenario, ours=ours), row_limit=0)


def transactions(texts: tuple[str, ...]) -> Iterator[list[str]]:
    """Cut a history where its transactions end; a statement outside BEGIN and COMMIT is one of its own."""
    rest = iter(texts)
    for text in rest:
        yield list(iter(rest.__next__, "COMMIT")) if text == "BEGIN" else [text]


def run(lake: Lake, reference: DuckLakeConnection, texts: list[str]) -> None:
    with lake.transaction() as tx:
        for text in texts:
            insert = re.fullmatch(r"INSERT INTO (\S+) (SELECT .*)", text, re.DOTALL)
            if insert:
                tx.append_arrow(insert[1], reference.arrow(insert[2]))
            else:
                apply_ddl(tx, parse_ddl(OURS.get(text, text)))
