"""Files that others wrote: the reference's, those of other libraries, and texts of every kind."""

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import DuckLakeError, InvalidInputError, SchemaMismatchError
from airflow_provider_ducklake.lake.format.names.identifiers import QualifiedName
from airflow_provider_ducklake.lake.format.schema import new_columns
from airflow_provider_ducklake.lake.spark.job.errors import typed
from airflow_provider_ducklake.lake.spark.job.request import Dataset
from airflow_provider_ducklake.lake.spark.sources import read_dataset
from airflow_provider_ducklake.lake.spark.writing.assignment import assign
from airflow_provider_ducklake.lake.writes.session import LakeSession
from tests import corpus_summary as summary
from tests.corpora import writers
from tests.corpora.comparison import other_arrow, other_table
from tests.corpora.outcomes import Outcome, of_error
from tests.interop import corpus
from tests.interop.comparison import names_of
from tests.interop.lakes import alone
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake
from tests.spark.reading import assert_same_rows
from tests.spark.text_kinds import KINDS

# how many scenarios, tables at a snapshot of each (None: all), and histories of how many statements
SIZES = {"ci": (12, 3, 1, 20), "full": (len(corpus.SCENARIOS), None, 30, 60)}


@pytest.fixture
def noted(record_property):
    """Put counts into the test's report, for the summary of the run."""
    return lambda counts: record_property(summary.BY_SPARK, dict(counts))


def compare(spark: SparkSession, catalog: CatalogDatabase, draw: random.Random, most: int | None) -> int:
    """Compare tables at a snapshot, some or all; return how many."""
    with open_lake(catalog) as duck, Lake.connect(catalog.sqlalchemy_url) as lake:
        pairs = list(_pairs(list(names_of(duck))))
        chosen = pairs if most is None else draw.sample(pairs, min(most, len(pairs)))
        for version, name in chosen:
            assert_same_rows(spark, lake, duck, name, at=version)
    return len(chosen)


def _pairs(names: list[tuple[int, list[QualifiedName]]]) -> Iterator[tuple[int, QualifiedName]]:
    return ((version, name) for version, tables in names for name in tables)


def test_scenarios_read_the_same(spark, new_catalog, noted, tmp_path, seed, size):
    count, most, *_ = SIZES[size]
    draw = random.Random(f"corpus by Spark {seed}")
    compared: Counter[str] = Counter()
    for number, scenario in enumerate(draw.sample(corpus.SCENARIOS, count)):
        catalog = new_catalog("sqlite")
        corpus.build(scenario, catalog, tmp_path / f"given{number}")
        compared[scenario.name] = compare(spark, catalog, draw, most)
    assert len(compared) == count
    assert all(compared.values()), compared
    noted({"compared": compared.total()})


def test_drawn_histories_read_the_same(spark, new_catalog, noted, seed, size):
    _, most, count, steps = SIZES[size]
    compared = 0
    for number in range(count):
        draw = random.Random(f"corpus by Spark {seed} {number}")
        catalog = new_catalog("sqlite")
        history = corpus.History(draw, Counter())
        with open_lake(catalog) as reference:
            history.play(reference, steps)
        try:
            compared += compare(spark, catalog, draw, None if most is None else 4 * most)
        except Exception as error:  # noqa: BLE001 - whatever it is, the statements show it again
            pytest.fail(f"--seed {seed}, history {number}: {error}\n" + ";\n".join(history.statements))
    assert compared > count * 5
    noted({"compared": compared})


# --- files as pandas, Polars, pyarrow, DuckDB, Spark 3 and fastparquet write them ---

_TABLE = Path(writers.__file__).with_name("shapes.tsv")


@dataclass(frozen=True)
class Expected:
    writer: str
    shape: str
    type: str  # of the lake; empty: refused
    refusal: str  # a pattern
    gap: str  # why this does not hold yet


def _expected() -> list[Expected]:
    _, *lines = _TABLE.read_text().splitlines()
    return [Expected(*line.split("\t")) for line in lines]


EXPECTED = _expected()
CASES = [
    pytest.param(
        one,
        id=f"{one.writer} {one.shape}",
        marks=pytest.mark.xfail(strict=True, raises=AssertionError, reason=one.gap) if one.gap else (),
    )
    for one in EXPECTED
]


@pytest.fixture
def lake(sqlite_catalog) -> Iterator[Lake]:
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake:
        alone(lake).create_table("read_before", {"id": "int64"})
        lake.append_arrow("read_before", pa.table({"id": [1]}))
        yield lake


@pytest.fixture
def write(new_session, tmp_path) -> Callable[..., Path]:
    """Write shapes of a writer as the columns of one file."""

    def write(writer: str, *shapes: str) -> Path:
        given, by = writers.WRITERS[writer]
        columns = {shape: given[shape] for shape in shapes}
        file = tmp_path / f"{writer}.parquet"
        if by is None:
            writers.by_spark(new_session(), file, columns)
        else:
            by(file, columns)
        return file

    return write


def became(spark, lake: Lake, file: Path, table: str) -> dict[str, str] | tuple[Outcome, str]:
    """Return the types of the columns that a file's became, or the refusal."""
    try:
        LakeSession(spark, lake).insert(table, str(file), create_table=True)
    except Exception as error:  # noqa: BLE001 - what users would see
        return of_error(error)
    return {column.name: str(column.type) for column in lake.table_snapshot(table).schema.columns}


def difference(lake: Lake, catalog, file: Path, table: str) -> str:
    """Say how DuckDB's rows of a table, or ours, differ from DuckDB's of the file; empty: they do not."""
    with open_lake(catalog) as duck:
        query = f"read_parquet('{file}')"
        return other_table(duck, table, query) or other_arrow(duck, lake.read_arrow(table), table)


@pytest.mark.corpora
@pytest.mark.parametrize("expected", CASES)
def test_a_shape_is_what_duckdb_reads_or_refused_whatever_the_session_did(
    new_session, lake, sqlite_catalog, write, expected
):
    file = write(expected.writer, expected.shape)
    used = new_session()
    LakeSession(used, lake).read("read_before").count()

    found = [
        became(session, lake, file, name) for name, session in (("fresh", new_session()), ("used", used))
    ]

    assert found[0] == found[1]
    if expected.type:
        assert found[0] == {expected.shape: expected.type}
        assert difference(lake, sqlite_catalog, file, "fresh") == ""
    else:
        assert isinstance(found[0], tuple), found[0]
        outcome, words = found[0]
        assert outcome is Outcome.REFUSED, words
        assert re.search(expected.refusal, words)


@pytest.mark.drawn(one_in=1)
@pytest.mark.parametrize("writer", writers.WRITERS)
def test_all_shapes_of_a_writer_go_in_at_once(own, lake, sqlite_catalog, write, writer):
    types = {one.shape: one.type for one in EXPECTED if one.writer == writer and one.type and not one.gap}
    file = write(writer, *(shape for shape in types if shape not in writers.ALONE))
    LakeSession(own, lake).read("read_before").count()

    found = became(own, lake, file, "t")

    assert found == {shape: type_ for shape, type_ in types.items() if shape not in writers.ALONE}
    assert difference(lake, sqlite_catalog, file, "t") == ""


def test_each_writer_has_its_shapes_and_each_is_spoken_of():
    assert all(len(shapes) >= 25 for shapes, _ in writers.WRITERS.values())
    written = {(writer, shape) for writer, (shapes, _) in writers.WRITERS.items() for shape in shapes}
    assert {(one.writer, one.shape) for one in EXPECTED} == written
    assert all(bool(one.type) != bool(one.refusal) for one in EXPECTED)


# --- drawn CSV and JSON files of every kind through every door ---

FILES = {"ci": 4, "full": 16}  # of each kind
SAME = ("int64", "varchar", "boolean")  # read alike where no table gives the types
DOORS = {  # name of the source, whether a table gives the types, whether the rows go into it
    "new table": ("source", False, True),
    "existing table": ("source", True, True),
    "merge": ("source", True, False),
    "query": ("sources['x']", False, True),
}


def plain(value):
    """Return a value without what Spark adds to it: rows are dicts."""
    if hasattr(value, "asDict"):
        return {name: plain(one) for name, one in value.asDict().items()}
    return [plain(one) for one in value] if isinstance(value, list) else value


def through(spark, drawn, path, door):
    """Return the columns and rows that a door has of the files, or its error."""
    name, is_typed, fills = DOORS[door]
    target = new_columns(drawn.columns)
    dataset = Dataset.of({"path": path, "format": drawn.format, "options": drawn.options}, name)
    try:
        df = read_dataset(spark, dataset, name, target if is_typed else None, fills=fills)
        if is_typed and fills:
            df = assign(df, target, "t")
        rows = [tuple(plain(value) for value in row) for row in df.collect()]
    except Exception as error:  # noqa: BLE001 - what users would see
        return None, typed(error)
    return [one.lower() for one in df.columns], rows


def in_order(rows, names, columns):
    """Return the rows with these columns, in the order of their texts."""
    places = [names.index(name) for name in columns]
    return sorted((tuple(row[place] for place in places) for row in rows), key=str)


def as_text(value):
    return None if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def same(value):
    return value


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_file_is_read_as_it_is_or_refused_by_name(request, spark, seed, tmp_path, kind):
    for number in range(FILES[request.config.option.size]):
        drawn = KINDS[kind](Random(f"{seed} {kind} {number}"))
        path = drawn.write(tmp_path / str(number))
        for door, (_, is_typed, fills) in DOORS.items():
            if drawn.only_filled and is_typed and not fills:
                continue  # a merge may have other columns than its table
            names, found = through(spark, drawn, path, door)

            said = (kind, number, door, drawn.files, drawn.options, found)
            if drawn.rows is None and (is_typed or not drawn.only_typed):
                assert isinstance(found, InvalidInputError | SchemaMismatchError), said
                assert isinstance(found, SchemaMismatchError) or "cannot be read: " in str(found), said
                continue
            assert not isinstance(found, DuckLakeError), said
            if drawn.rows is None or (drawn.only_typed and not is_typed and "schema" not in drawn.options):
                continue  # what the types make of the texts
            columns, rows = list(drawn.columns), drawn.rows
            if not is_typed and "schema" not in drawn.options:
                has_texts = drawn.format == "csv"  # of numbers and times there are more than one
                columns = [name for name in columns if drawn.columns[name] in SAME and name in names]
                rows = [tuple(map(as_text if has_texts else same, row)) for row in rows]
            unnamed = [name for name in columns if name not in names and drawn.format == "json" and not fills]
            for name in unnamed:  # a key that no object has
                assert all(row[list(drawn.columns).index(name)] is None for row in rows), said
            columns = [name for name in columns if name not in unnamed]
            assert len(found) == len(rows), said
            assert in_order(found, names, columns) == in_order(rows, list(drawn.columns), columns), said
