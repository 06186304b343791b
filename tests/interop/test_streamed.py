"""Rows of large questions come a part at a time, from every database, and no cursor stays open."""

import gc

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, func, select

from airflow_provider_ducklake.catalog.database.questions import streamed, streamed_parts
from airflow_provider_ducklake.catalog.lake import Lake
from tests.reference.catalogs import CATALOG_KINDS

COUNT = 25_000
MANY = Table("many", MetaData(), Column("i", Integer))
QUERY = select(MANY.c.i).order_by(MANY.c.i)


@pytest.mark.parametrize("kind", CATALOG_KINDS)
def test_all_rows_come_and_who_stops_early_leaves_nothing_open(new_catalog, kind):
    catalog = new_catalog(kind)
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        dialect = lake._lake.catalog.dialect
        with dialect.writing() as connection:
            MANY.create(connection)
            connection.execute(MANY.insert(), [{"i": number} for number in range(COUNT)])
            connection.commit()

        with dialect.reading() as connection:
            assert [row.i for row in streamed(connection, QUERY)] == [*range(COUNT)]
            assert [len(part) for part in streamed_parts(connection, QUERY, 10_000)] == [
                10_000,
                10_000,
                5_000,
            ]
            rows = streamed(connection, QUERY)
            assert next(rows).i == 0
            rows.close()
            assert connection.execute(select(func.count()).select_from(MANY)).scalar_one() == COUNT
        gc.collect()  # a cursor that was left open warns, which fails the test
