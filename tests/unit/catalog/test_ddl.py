"""Errors of statements that can be read and not be done."""

import pickle
from collections.abc import Iterator

import pytest

from airflow_provider_ducklake.lake import errors
from airflow_provider_ducklake.lake.catalog.drafting.ddl import apply_ddl
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.sql.duckdb.ddl import parse_ddl


@pytest.fixture
def lake(tmp_path) -> Iterator[Lake]:
    with Lake.create(f"sqlite:///{tmp_path}/lake.sqlite", f"{tmp_path}/files/") as lake:
        run(lake, "CREATE TABLE t (a INT, b VARCHAR)")
        yield lake


def run(lake: Lake, text: str) -> None:
    with lake.transaction() as tx:
        apply_ddl(tx, parse_ddl(text))


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("CREATE TABLE t (a INT)", errors.AlreadyExistsError),
        ("CREATE TABLE nosuch.t (a INT)", errors.SchemaNotFoundError),
        ("DROP TABLE u", errors.TableNotFoundError),
        ("COMMENT ON VIEW t IS 'x'", errors.ViewNotFoundError),
        ("ALTER TABLE t ALTER nosuch SET NOT NULL", errors.ColumnNotFoundError),
        ("ALTER TABLE t ALTER a TYPE SMALLINT", errors.InvalidTypeError),
        ("ALTER TABLE t SET PARTITIONED BY (year(b))", errors.InvalidPartitionError),
        ("ALTER TABLE t ALTER a SET DEFAULT 'x'", errors.InvalidInputError),
        ("DROP SCHEMA made", errors.InvalidInputError),
    ],
)
def test_an_error_names_its_statement_and_nothing_lands(lake, statement, error):
    before = lake.current_snapshot()

    with pytest.raises(error) as raised:
        run(lake, f"CREATE SCHEMA made; CREATE TABLE made.t (a INT); {statement}; DROP TABLE t")

    assert type(raised.value) is error
    assert raised.value.__notes__ == [f"Statement 3 ({statement})"]
    assert pickle.loads(pickle.dumps(raised.value)).__notes__ == raised.value.__notes__
    assert lake.current_snapshot() == before


def test_a_long_statement_is_cut_where_an_error_names_it(lake):
    columns = ",\n  ".join(f"column_{number} INT" for number in range(100))

    with pytest.raises(errors.AlreadyExistsError) as raised:
        run(lake, f"CREATE TABLE t (\n  {columns})")

    (note,) = raised.value.__notes__
    assert note.startswith("Statement 1 (CREATE TABLE t ( column_0 INT, column_1 INT, ")
    assert note.endswith(" …)")
    assert len(note) < 220
