"""We and ducklakepy write a lake of 1.1 in turns: what both read is what a model says, at every snapshot."""

import random
from collections import Counter

import pyarrow as pa
import pytest
from pyspark.sql.types import VariantVal

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.planning.upkeep.findings import FindingCode
from tests.differential.turns import ARROW, DOCS, Names, TableModel, Turns, located, numbers_of, physical
from tests.reference import ducklakepy_lake
from tests.reference.catalog_dump import dump_catalog
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_core import open_core

# histories, steps in each
SIZES = {"ci": {"sqlite": (1, 40), "postgres": (1, 40)}, "full": {"sqlite": (24, 100), "postgres": (4, 100)}}
LOOK = 20  # steps between two looks at all snapshots
EACH_AT_LEAST = 30
FEATURES = (
    "nested schemas",
    "nested schemas dropped with what is in them",
    "tables in nested schemas",
    "renamed tables of nested schemas",
    "comments on columns of views",
    "deletion vectors",
    "deletion vectors of several snapshots",
    *(f"inserted: epoch_{unit}" for unit in ("year", "month", "day", "hour")),
    *(f"{verb}: type {type_}" for verb in ("inserted", "updated") for type_ in ("null", "timestamptz_ns")),
    *(f"inserted: column {name}" for name in ("row_id", "begin_snapshot", "end_snapshot")),
    *(
        f"{verb} by {who}"
        for verb in ("insert", "delete", "update", "flush")
        for who in ("ours", "ducklakepy")
    ),
    "inlined variants",
)
# What verify() may find, and whose it is.
KNOWN = {
    FindingCode.FILE_COUNTER_STOOD: "ducklakepy's: an inlined insert takes no file id",
    FindingCode.INLINED_COLUMNS_DIFFER: (
        "everybody's: a table altered while data_inlining_row_limit is 0 keeps its table for inlined rows"
    ),
}


@pytest.mark.timeout(14_400)
def test_turns_at_writing(new_catalog, catalog_kind, seed, size, capsys):
    counts: Counter[str] = Counter()
    histories, steps = SIZES[size][catalog_kind]
    for index in range(histories):
        play(
            new_catalog(catalog_kind),
            random.Random(f"turns {seed} {index}"),
            steps,
            counts,
            f"seed {seed}, history {index}",
        )
    with capsys.disabled():
        print(f"\nturns on {catalog_kind}, seed {seed}: {counts['transactions']} transactions")  # noqa: T201
        print("\n".join(f"{count:6} {name}" for name, count in sorted(counts.items())))  # noqa: T201
    if size == "full" and catalog_kind == "sqlite":
        assert counts["transactions"] >= 2000
        assert {name: counts[name] for name in FEATURES if counts[name] < EACH_AT_LEAST} == {}


def play(catalog: CatalogDatabase, draw: random.Random, steps: int, counts: Counter[str], where: str) -> None:
    done: list[str] = []
    with (
        Lake.create(catalog.sqlalchemy_url, catalog.data_path, version="1.1") as lake,
        ducklakepy_lake.open_lake(catalog) as theirs,
        open_core() as core,
    ):
        turns = Turns(lake, theirs, core, draw)
        turns.counts = counts
        try:
            for number in range(steps):
                done.append(turns.step())
                look_at_the_head(turns)
                count_vectors(catalog, turns)
                if number % LOOK == LOOK - 1 or number == steps - 1:
                    look_at_all(turns)
        except Exception as error:
            error.add_note(f"{where}, after {len(done)} steps: {', '.join(done[-12:])}")
            raise


def look_at_the_head(turns: Turns) -> None:
    """Compare what the step changed; with row ids, and what its snapshot's feed says."""
    lake, model = turns.lake, turns.model
    assert {one.parts for one in lake.tables()} == set(model.tables)
    for name in turns.changed:
        table = model.tables[name]
        agree(turns, name, table, None)
        row_ids(turns, name, table)
        feeds(turns, name)
        pruned(turns, name, table)
        exact_answers(turns, name, table)


def agree(turns: Turns, name: Names, table: TableModel, at: int | None) -> None:
    ours = physical(turns.lake.read_arrow(name, at=at), table.columns)
    assert ours == table.rows, f"ours reads {name} at {at}"
    theirs = physical(turns.theirs.read(name, at), table.columns)
    assert theirs == table.rows, f"ducklakepy reads {name} at {at}"


def row_ids(turns: Turns, name: Names, table: TableModel) -> None:
    ours = {id_: place.row_id for id_, place in located(turns.lake, name).items()}
    read = turns.theirs.read_row_ids(name)
    theirs = dict(zip(read["id"].to_pylist(), read["rowid"].to_pylist(), strict=True))
    assert ours == theirs, name
    assert len(set(ours.values())) == len(ours)
    for id_, row_id in ours.items():
        assert turns.row_ids.setdefault((table.key, id_), row_id) == row_id, (
            f"{name}: row {id_} has another id"
        )


def feeds(turns: Turns, name: Names) -> None:
    head = turns.head
    for feed in (turns.lake.changes(name, head, head).read_arrow(), turns.theirs.changes(name, head, head)):
        found = Counter(zip(feed["change_type"].to_pylist(), feed["id"].to_pylist(), strict=True))
        assert found == turns.changed[name], name


def pruned(turns: Turns, name: Names, table: TableModel) -> None:
    """Ask for rows with a value: no file or row that has it may be left out by statistics."""
    values = {row["n"] for row in table.rows.values()} - {None}
    if not values:
        return
    value = turns.draw.choice(sorted(values))
    expected = {id_ for id_, row in table.rows.items() if row["n"] == value}
    assert set(turns.lake.read_arrow(name, filter=f"n = {value}")["id"].to_pylist()) == expected
    assert set(turns.theirs.read(name, None, [("n", "=", value)])["id"].to_pylist()) >= expected


def exact_answers(turns: Turns, name: Names, table: TableModel) -> None:
    """Ask the catalog for the least and the greatest value of each column."""
    for column, type_ in table.columns.items():
        found = turns.lake.column_bounds(name, column)
        values = {row[column] for row in table.rows.values()} - {None}
        if found is not None:
            ends = pa.array([found.min.as_py(), found.max.as_py()], ARROW[type_])
            said = numbers_of(pa.chunked_array([ends]), type_)
            assert said == ([min(values), max(values)] if values else [None, None]), (name, column)
            turns.counts["exact answers"] += 1


def look_at_all(turns: Turns) -> None:
    for snapshot, tables in turns.past.items():
        assert {one.parts for one in turns.lake.tables(snapshot)} == set(tables), snapshot
        assert set(turns.theirs.tables(snapshot)) == set(tables), snapshot
        for name, table in tables.items():
            agree(turns, name, table, snapshot)
            turns.counts["tables at a snapshot read by both"] += 1
    assert set(turns.theirs.schemas()) == turns.model.schemas
    documents(turns)
    for view, comments in turns.model.views.items():
        assert turns.theirs.view(view)["column_comments"] == comments, view
    found = [str(finding) for finding in turns.lake.verify() if finding.code not in KNOWN]
    assert found == []


def documents(turns: Turns) -> None:
    """Compare the variants, which Spark decodes."""
    rows = turns.lake.read_arrow(DOCS, columns=["id", "doc"]).to_pylist()
    values = {row["id"]: VariantVal(row["doc"]["value"], row["doc"]["metadata"]).toPython() for row in rows}
    assert values == {id_: turns.documents[id_] for id_ in turns.model.tables[DOCS].rows}


def count_vectors(catalog: CatalogDatabase, turns: Turns) -> None:
    """Count the delete files that the newest snapshot made vectors."""
    for row in dump_catalog(catalog)["ducklake_delete_file"]:
        if row["format"] == "puffin" and turns.head in (row["partial_max"], row["begin_snapshot"]):
            several = " of several snapshots" if row["partial_max"] else ""
            turns.counts[f"deletion vectors{several}"] += 1
