"""Tables that Iceberg wrote on Spark become a lake's tables: the rows are those that Iceberg reads."""

from pathlib import Path

import pytest

from airflow_provider_ducklake.lake.errors import UnsupportedFeatureError
from tests.reference.duckdb_lake import open_lake

MERGE_ON_READ = "'write.delete.mode'='merge-on-read', 'write.update.mode'='merge-on-read'"


@pytest.fixture
def theirs(spark, tmp_path):
    """Return a function that makes a table of a format version in a folder of its own, and the folder."""
    made = []

    def make(version: int) -> tuple[str, Path]:
        name = f"ice.theirs.t{version}_{tmp_path.name}"
        made.append(name)
        spark.sql(
            f"CREATE TABLE {name} (id BIGINT, name STRING, stamp TIMESTAMP, price DECIMAL(9, 2)) "
            "USING iceberg PARTITIONED BY (bucket(4, id), days(stamp)) "
            f"TBLPROPERTIES ('format-version'='{version}', {MERGE_ON_READ})"
        )
        spark.sql(
            f"INSERT INTO {name} SELECT id, concat('n', id), timestamp_micros(id * 20000000000), "
            "CAST(id AS DECIMAL(9, 2)) FROM range(0, 40, 1, 1)"
        )
        warehouse = Path(spark.conf.get("spark.sql.catalog.ice.warehouse"))
        return name, warehouse / name.removeprefix("ice.").replace(".", "/")

    yield make
    for name in made:
        spark.sql(f"DROP TABLE IF EXISTS {name} PURGE")


@pytest.mark.parametrize("version", [1, 2, 3])
def test_rows_are_those_that_iceberg_reads(spark, lake, catalog, theirs, version):
    name, folder = theirs(version)
    if version > 1:
        spark.sql(f"DELETE FROM {name} WHERE id % 7 = 3")
    spark.sql(f"ALTER TABLE {name} RENAME COLUMN name TO title")
    spark.sql(f"ALTER TABLE {name} ADD COLUMN extra STRING")
    spark.sql(f"INSERT INTO {name} VALUES (100, 'late', NULL, NULL, 'e')")
    if version > 1:
        spark.sql(f"DELETE FROM {name} WHERE id IN (20, 21)")
    query = "SELECT id, title, unix_micros(stamp), price, extra FROM {} ORDER BY id"
    expected = [tuple(row) for row in spark.sql(query.format(name)).collect()]

    lake.add_table("t", str(folder), "iceberg", create_table=True)

    with open_lake(catalog.attach_string, catalog.data_path) as duck:
        assert duck.sql(query.format("t").replace("unix_micros", "epoch_us")) == expected
    ours = lake.read_arrow("t").sort_by("id")
    names = ("id", "title", "price", "extra")
    columns = [ours[one].to_pylist() for one in names]
    assert list(zip(*columns, strict=True)) == [(*row[:2], *row[3:]) for row in expected]
    keys = [str(one.transform) for one in lake.table_snapshot("t").partition_spec.fields]
    assert keys == ["bucket(4)", "year", "month", "day"]
    assert all(len(one.partition_values) == 4 for one in lake.table_snapshot("t", with_files=True).files)
    assert lake.verify() == []


def test_files_that_version_3_updated_are_refused(spark, lake, theirs):
    name, folder = theirs(3)
    spark.sql(f"UPDATE {name} SET name = 'up' WHERE id = 4")

    with pytest.raises(UnsupportedFeatureError, match="column _row_id"):
        lake.add_table("t", str(folder), "iceberg", create_table=True)
