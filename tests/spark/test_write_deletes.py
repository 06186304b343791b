"""Delete files that a job writes: few in one process, many by tasks; and what is in them."""

import pyarrow.parquet as pq

from airflow_provider_ducklake.lake.spark.writing import write_deletes


def test_tasks_write_what_one_process_writes(spark, tmp_path):
    places = [(file, place) for file in (3, 7, 8) for place in range(0, 5_000 * file, file)]
    columns = f"{write_deletes.FILE_ID} bigint, {write_deletes.POSITION} bigint"
    rows = spark.createDataFrame([*places[::-1], *places[:10]], columns)
    paths = {file: f"/data/{file}.parquet" for file in (3, 7, 8)}

    for name, count in (("here", len(places)), ("tasks", 2**20 + 1)):
        (tmp_path / name).mkdir()
        written = write_deletes.write(rows, count, paths, write_deletes.DeleteFolder(f"{tmp_path}/{name}/"))

        assert sorted((int(one.data_file_id), one.count) for one in written) == [
            (3, 5_000),
            (7, 5_000),
            (8, 5_000),
        ]
        for one in written:
            deleted = pq.read_table(one.path)
            assert deleted["pos"].to_pylist() == list(range(0, 5_000 * one.data_file_id, one.data_file_id))
            assert set(deleted["file_path"].to_pylist()) == {paths[one.data_file_id]}
