"""Rows of large questions come a part at a time, from every database, and no cursor stays open."""

import gc

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, func, select

from airflow_provider_ducklake.lake.catalog.database.connect import streamed, streamed_parts
from airflow_provider_ducklake.lake.catalog.lake import Lake
from tests.reference.catalogs import CATALOG_KINDS

COUNT = 25_000


@pytest.mark.parametrize("kind", CATALOG_KINDS)
def test_all_rows_come_and_who_stops_early_leaves_nothing_open(new_catalog, kind):
    catalog = new_catalog(kind)
    schema = "public" if kind == "postgres" else None
    many = Table("many", MetaData(schema=schema), Column("i", Integer))
    query = select(many.c.i).order_by(many.c.i)
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        dialect = lake.opened.catalog.dialect
        with dialect.writing() as connection:
            many.create(connection)
            connection.execute(many.insert(), [{"i": number} for number in range(COUNT)])
            connection.commit()

        with dialect.reading() as connection:
            assert [row.i for row in streamed(connection, query)] == [*range(COUNT)]
            assert [len(part) for part in streamed_parts(connection, query, 10_000)] == [
                10_000,
                10_000,
                5_000,
            ]
            rows = streamed(connection, query)
            assert next(rows).i == 0
            rows.close()
            assert connection.execute(select(func.count()).select_from(many)).scalar_one() == COUNT
        gc.collect()  # a cursor that was left open warns, which fails the test
