"""Drawn CSV and JSON files of every kind through every door: their rows, or one error that names the file."""

from random import Random

import pytest

from airflow_provider_ducklake.lake.errors import DuckLakeError, InvalidInputError, SchemaMismatchError
from airflow_provider_ducklake.lake.format.schema import new_columns
from airflow_provider_ducklake.lake.spark.job.errors import typed
from airflow_provider_ducklake.lake.spark.job.request import Dataset
from airflow_provider_ducklake.lake.spark.sources import read_dataset
from airflow_provider_ducklake.lake.spark.writing.assignment import assign
from tests.spark.text_kinds import KINDS

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
