"""Every text reaches the catalog as it is, however many rows are written at once."""

import pytest
from sqlalchemy import create_engine, text

from airflow_provider_ducklake.lake.catalog.database.connect import parse_url
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import CatalogError, InvalidInputError
from airflow_provider_ducklake.lake.format.files import ColumnStats, DataFile
from airflow_provider_ducklake.lake.format.snapshots import ColumnId

TEXTS = [
    "NULL",
    "null",
    "",
    " ",
    '"',
    '""',
    "\\",
    '\\"',
    "'",
    "it''s",
    "{}",
    "{a,b}",
    ",",
    "%",
    "%s",
    "%(x)s",
]
TEXTS += ["\n\r\t", "$1", ":x", "é😀", "\x01", "E'\\n'", "); DROP TABLE x; --", "-1", "true", "\u2028"]


@pytest.mark.every_catalog
@pytest.mark.parametrize("at_once", [1, len(TEXTS)])
def test_bounds_are_kept(catalog, at_once: int) -> None:
    column = ColumnId(1)
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        with lake.transaction() as tx:
            tx.create_table("t", {"s": "varchar"})
        for start in range(0, len(TEXTS), at_once):
            with lake.transaction() as tx:
                tx.append_files("t", [file_of(column, one) for one in TEXTS[start : start + at_once]])
        files = lake.scan("t", filter="s IS NOT NULL").files
        bounds = [(one.column_stats[column].min_value, one.column_stats[column].max_value) for one in files]
        assert sorted(bounds) == sorted((one, one) for one in TEXTS)


def file_of(column: ColumnId, text: str) -> DataFile:
    stats = ColumnStats(column, value_count=1, null_count=0, min_value=text, max_value=text)
    return DataFile(f"file-{TEXTS.index(text)}.parquet", 1, 100, 10, {column: stats})


@pytest.mark.every_catalog
@pytest.mark.parametrize(
    "column",
    [
        "ducklake_snapshot_changes.changes_made",
        "ducklake_snapshot_changes.commit_extra_info",
        "ducklake_table.table_name",
        "ducklake_column.default_value",
        "ducklake_metadata.value",
    ],
)
def test_a_text_of_megabytes_is_refused_before_it_is_parsed(catalog, column) -> None:
    """Parsing one takes seconds for each, of a triggerer that other lakes share."""
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake, lake.transaction() as tx:
        tx.create_table("t", {"s": "varchar"})
    table, _, name = column.partition(".")
    engine = create_engine(parse_url(catalog.sqlalchemy_url))
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE {table} SET {name} = :long"), {"long": "inserted:1," * 200_000})
    engine.dispose()

    with pytest.raises(CatalogError, match=rf"{column} begins a text of 2,200,000 characters"):
        look_at(catalog.sqlalchemy_url)


def look_at(url: str) -> None:
    with Lake.connect(url) as lake:
        lake.reads.table_rows()
        lake.table_changes("t", 0, ["data", "schema"])
        lake.snapshots()
        lake.table_snapshot("t")


def test_no_text_is_written_that_would_not_be_read(sqlite_catalog) -> None:
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake:
        with (
            pytest.raises(InvalidInputError, match=r"commit_message would have 2,097,153 characters"),
            lake.transaction(message="x" * (2**21 + 1)) as tx,
        ):
            tx.create_table("t", {"s": "varchar"})
        assert lake.current_snapshot().id == 0
