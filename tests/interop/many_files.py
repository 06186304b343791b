"""A table of many data files, of which only one exists: the catalog is filled by SQL."""

from datetime import date, timedelta
from decimal import Decimal

import pyarrow as pa
from sqlalchemy import create_engine, text

from airflow_provider_ducklake.lake.catalog.database.connect import parse_url
from airflow_provider_ducklake.lake.catalog.lake import Lake

FIRST_DAY = date(2000, 1, 1)
POINT_FILTERS = {  # each is met by the one row that exists, number 5
    "id = 5": "a whole number",
    "day = DATE '2000-01-06'": "a date",
    "name = 'n000000005'": "a text",
    "id IN (5, -1) AND price > 0": "only in part by the database",
    "price = 5.5": "a decimal",
}
_FILE = """INSERT INTO ducklake_data_file (data_file_id, table_id, begin_snapshot, path, path_is_relative,
    file_format, record_count, file_size_bytes, footer_size, row_id_start)
    VALUES (:id, 1, 2, :path, {true}, 'parquet', 1, 500, 200, :id)"""
_STATISTICS = """INSERT INTO ducklake_file_column_stats (data_file_id, table_id, column_id, column_size_bytes,
    value_count, null_count, min_value, max_value) VALUES (:id, 1, :column, 40, 1, 0, :bound, :bound)"""


def make_many_files(catalog, count: int) -> None:
    """Create a lake whose table `t` has that many files."""
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        lake.set_option("data_inlining_row_limit", 0)
        with lake.transaction() as tx:
            tx.create_table("t", {"id": "int64", "day": "date", "name": "varchar", "price": "decimal(9,2)"})
        id_, day, name, price = _values(5)
        lake.append_arrow(
            "t",
            pa.table(
                {"id": [id_], "day": [day], "name": [name], "price": pa.array([price], pa.decimal128(9, 2))}
            ),
        )
    numbers = range(10, 9 + count)
    engine = create_engine(parse_url(catalog.sqlalchemy_url))
    is_true = "true" if catalog.kind == "postgres" else "1"
    with engine.begin() as connection:
        connection.execute(
            text(_FILE.format(true=is_true)), [{"id": one, "path": f"{one}.parquet"} for one in numbers]
        )
        connection.execute(
            text(_STATISTICS),
            [
                {"id": one, "column": column, "bound": str(value)}
                for one in numbers
                for column, value in enumerate(_values(one), 1)
            ],
        )
    if catalog.kind == "postgres":
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM ANALYZE"))  # as autovacuum does in time
    engine.dispose()


def _values(number: int) -> tuple[int, date, str, Decimal]:
    return number, FIRST_DAY + timedelta(number), f"n{number:09}", Decimal(f"{number}.50")
