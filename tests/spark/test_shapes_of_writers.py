"""Files as pandas, Polars, pyarrow, DuckDB, Spark 3 and fastparquet write them, as sources of an insert.

`tests/corpora/shapes.tsv` says what each shape of a column becomes: a type of the lake, or a refusal.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.writes.session import LakeSession
from tests.corpora import writers
from tests.corpora.comparison import other_arrow, other_table
from tests.corpora.outcomes import Outcome, of_error
from tests.reference.duckdb_lake import open_lake

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
        with lake.transaction() as tx:
            tx.create_table("read_before", {"id": "int64"})
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
