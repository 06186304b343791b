"""The keys of files are values in the catalog: no error's traceback and no log of statements shows one."""

import logging
import traceback

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import IntegrityError

from airflow_provider_ducklake.lake.catalog.database.connect import open_engine, parse_url
from airflow_provider_ducklake.lake.catalog.dialects.dialect import CommitRetryPolicy
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import CommitRetriesExceededError, DuckLakeError
from airflow_provider_ducklake.lake.format.files import ColumnStats, DataFile, FileKey
from airflow_provider_ducklake.lake.format.snapshots import ColumnId, CommitInfo
from airflow_provider_ducklake.lake.transaction.changes import AppendFiles
from tests.interop.lakes import alone

KEY = FileKey.of_length(16)
BOUND = "a value of the table"
SECRETS = (KEY.text, BOUND)


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.fixture
def statements():
    """Collect what SQLAlchemy logs for a user who looks for slow statements."""
    logger, handler = logging.getLogger("sqlalchemy.engine"), _Lines()
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler.lines
    logger.setLevel(before)
    logger.removeHandler(handler)


@pytest.fixture
def change(catalog):
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path, encrypted=True) as lake:
        alone(lake).create_table("t", {"s": "varchar"})
        table = lake.table_snapshot("t")
    stats = {ColumnId(1): ColumnStats(ColumnId(1), 1, 0, BOUND, BOUND)}
    file = DataFile("x.parquet", 1, 100, 10, stats, encryption_key=KEY)
    return AppendFiles(table.table_id, table.name, table.schema, (file,))


def execute(catalog, statement: str) -> None:
    engine = create_engine(parse_url(catalog.sqlalchemy_url))
    with engine.begin() as connection:
        connection.exec_driver_sql(statement)
    engine.dispose()


def fail(catalog, change, error: type[Exception]) -> str:
    """Have a commit of the change fail, and return the traceback."""
    with Lake.connect(catalog.sqlalchemy_url) as lake, pytest.raises(error) as raised:
        lake.committer.commit(
            lake.current_snapshot().id, [change], CommitInfo(), retry=CommitRetryPolicy(2, 0.01)
        )
    return "".join(traceback.format_exception(raised.value))


@pytest.mark.every_catalog
def test_a_lost_race_shows_what_the_driver_said_and_no_value(catalog, change, statements):
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        lake.committer.commit(lake.current_snapshot().id, [change], CommitInfo())
    assert statements
    execute(catalog, "CREATE UNIQUE INDEX once ON ducklake_data_file (table_id)")

    shown = fail(catalog, change, CommitRetriesExceededError)

    assert not [one for one in SECRETS for line in (shown, *statements) if one in line]
    assert "DriverError" in shown


def test_no_error_of_postgresql_shows_the_row_that_failed(postgres_catalog):
    engine = open_engine(parse_url(postgres_catalog.sqlalchemy_url))
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE t (value varchar UNIQUE CHECK (length(value) < 10))")

    with engine.connect() as connection, pytest.raises(IntegrityError, match="check constraint") as raised:
        connection.execute(text("INSERT INTO t VALUES (:value)"), {"value": KEY.text})
    engine.dispose()

    assert raised.value.orig.sqlstate == "23514"
    assert KEY.text not in "".join(traceback.format_exception(raised.value))


ALTERED = {
    "duckdb": "ALTER TABLE ducklake_data_file ALTER encryption_key TYPE {}",
    "mariadb": "ALTER TABLE ducklake_data_file MODIFY encryption_key {}",
    "postgres": "ALTER TABLE ducklake_data_file ALTER encryption_key TYPE {} USING NULL",
}
ODD_TYPES = ("BIGINT", "DATE", "DECIMAL(5, 2)", "VARCHAR(3)", "BOOLEAN", "TIME")


@pytest.mark.every_catalog
@pytest.mark.parametrize("type_", ODD_TYPES)
def test_a_key_that_does_not_fit_its_column_is_in_no_error(catalog, change, statements, type_):
    """Whoever may alter the table chooses what the server says of the values of others."""
    if catalog.kind in ALTERED:  # SQLite keeps any value in any column
        execute(catalog, ALTERED[catalog.kind].format(type_))
    try:
        with Lake.connect(catalog.sqlalchemy_url) as lake:
            lake.committer.commit(lake.current_snapshot().id, [change], CommitInfo())
    except DuckLakeError as error:
        shown = traceback.format_exception(error)
    else:
        shown = []  # it fits

    assert bool(shown) == (catalog.kind in ALTERED and not fits(catalog.kind, type_))
    assert not [one for one in SECRETS for line in (*shown, *statements) if one in line]


def fits(kind: str, type_: str) -> bool:
    """Return True if a database takes a text into such a column: DuckDB's has no length."""
    return kind == "duckdb" and type_.startswith("VARCHAR")
