"""Every text reaches the catalog as it is, however many rows are written at once."""

import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.spec.files import ColumnStats, DataFile
from airflow_provider_ducklake.lake.spec.snapshots import ColumnId

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
                tx.append_files("t", [file_of(column, text) for text in TEXTS[start : start + at_once]])
        files = lake.scan("t", filter="s IS NOT NULL").files
        bounds = [(one.column_stats[column].min_value, one.column_stats[column].max_value) for one in files]
        assert sorted(bounds) == sorted((text, text) for text in TEXTS)


def file_of(column: ColumnId, text: str) -> DataFile:
    stats = ColumnStats(column, value_count=1, null_count=0, min_value=text, max_value=text)
    return DataFile(f"file-{TEXTS.index(text)}.parquet", 1, 100, 10, {column: stats})
