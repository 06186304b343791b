"""What the catalog tells of tables and files equals what the reference lists."""

import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import TableNotFoundError
from tests.interop.test_reads_at_every_snapshot import SCENARIOS, TABLE
from tests.reference.duckdb_lake import open_lake


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_tables_and_files_are_those_the_reference_lists(catalog, scenario):
    with open_lake(catalog) as reference:
        for statement in ["CREATE SCHEMA s", "CREATE TABLE s.empty (i INT)", TABLE, *SCENARIOS[scenario]]:
            reference.sql(statement)
        infos = reference.sql("FROM ducklake_table_info('lake') ORDER BY table_name DESC")
        ((newest,),) = reference.sql("SELECT max(snapshot_id) FROM ducklake_snapshots('lake')")
        with Lake.connect(catalog.sqlalchemy_url) as lake:
            ours = [
                (
                    one.table_name,
                    one.schema_id,
                    one.table_id,
                    one.table_uuid,
                    one.file_count,
                    one.file_size_bytes,
                    one.delete_file_count,
                    one.delete_file_size_bytes,
                )
                for one in lake.table_info()
            ]
            assert ours == [(*row[:3], str(row[3]), *row[4:]) for row in infos]
            for version in range(3, newest + 1):
                theirs = reference.sql(
                    f"FROM ducklake_list_files('lake', 't', snapshot_version => {version})"
                )
                listed = [
                    tuple(getattr(one, name) for name in one.__slots__) for one in lake.files("t", version)
                ]
                assert sorted(listed) == sorted(theirs), version


def test_inlined_rows_are_counted_at_each_snapshot(catalog):
    with open_lake(catalog) as reference:
        for statement in [
            TABLE,
            "INSERT INTO t VALUES (1, 'a', NULL, NULL), (2, 'b', NULL, NULL)",
            "ALTER TABLE t ADD COLUMN z INT",
            "INSERT INTO t VALUES (3, 'c', NULL, NULL, 1)",
            "DELETE FROM t WHERE i = 1",
        ]:
            reference.sql(statement)
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        counts = [lake.table_info("t", at=version)[0].inlined_row_count for version in range(1, 6)]

        assert counts == [0, 2, 2, 3, 2]
        with pytest.raises(TableNotFoundError):
            lake.table_info("nothing")
        with pytest.raises(TableNotFoundError):
            lake.files("t", at=0)
