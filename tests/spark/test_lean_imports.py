import subprocess
import sys

SCRIPT = """
import sys
for absent in ("airflow", "fsspec", "numpy", "pandas", "pyspark", "sqlalchemy"):
    sys.modules[absent] = None
import pyarrow as pa
from airflow_provider_ducklake.lake.format.files import LiveDataFile
from airflow_provider_ducklake.lake.format.schema import new_columns
from airflow_provider_ducklake.lake.storage.arrow.arrow_types import arrow_schema
from airflow_provider_ducklake.lake.storage.parquet.reader import read_data_file
from airflow_provider_ducklake.lake.storage.parquet.writer import RollingWriter

schema = new_columns({"x": "float64", "l": "struct(s varchar, d decimal(38,2))[]", "n": "timestamp_ns"})
rows = [{"x": float(n), "l": [{"s": "y" * 5000, "d": None}], "n": None} for n in range(9)]
with RollingWriter(schema, lambda: sys.argv[1]) as writer:
    writer.write(pa.RecordBatch.from_pylist(rows, schema=arrow_schema(schema)))
file = LiveDataFile(1, sys.argv[1], 9, 1, 1, 0, 1)
assert read_data_file(file, schema, table="t", snapshot_id=1).cast().to_pylist() == rows
assert writer.files[0].column_stats[1].max_value == "8.0"
"""


def test_files_are_written_and_read_with_pyarrow_alone(tmp_path):
    """A Spark executor may have nothing else."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "file")], check=False, capture_output=True
    )

    assert done.returncode == 0, done.stderr.decode()
