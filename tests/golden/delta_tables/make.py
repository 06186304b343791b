"""Write the Delta tables beside this file again, with Spark: deltalake writes no vectors and maps no names.

python scripts/spark_peers.py python tests/golden/delta_tables/make.py
"""

import shutil
import sys
from pathlib import Path

from pyspark.sql import SparkSession

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER.parents[2]))

from scripts.spark_peers import DELTA, jars  # noqa: E402

VECTORS = "'delta.enableDeletionVectors'='true'"
STATEMENTS = {
    "vectors": [
        (
            "CREATE TABLE {} (id BIGINT, name STRING, at TIMESTAMP, tags ARRAY<STRING>, "
            "home STRUCT<zip: INT, city: STRING>, counts MAP<STRING, INT>) USING delta "
            f"TBLPROPERTIES ({VECTORS})"
        ),
        (
            "INSERT INTO {} SELECT id, concat('n', id), timestamp_micros(id * 1000001), array(concat('t', "
            "id)), named_struct('zip', CAST(id AS INT), 'city', 'c'), map('k', CAST(id AS INT)) "
            "FROM range(0, 50, 1, 1)"
        ),
        "DELETE FROM {} WHERE id % 7 = 3",
        "INSERT INTO {} SELECT id, 'late', NULL, NULL, NULL, NULL FROM range(50, 60, 1, 1)",
        "DELETE FROM {} WHERE id IN (40, 55)",
    ],
    "parts": [
        (
            "CREATE TABLE {} (id INT, place STRING, day DATE, ok BOOLEAN) USING delta "
            "PARTITIONED BY (place, day, ok) "
            f"TBLPROPERTIES ({VECTORS})"
        ),
        (
            "INSERT INTO {} SELECT /*+ COALESCE(1) */ * FROM VALUES (1, 'a b/c%=é', DATE'2024-01-31', true), "
            "(2, 'a b/c%=é', DATE'2024-01-31', true), (3, NULL, NULL, false), "
            "(4, NULL, NULL, false) AS t(a, b, c, d)"
        ),
        "DELETE FROM {} WHERE id IN (2, 3)",
    ],
    "named": [
        (
            "CREATE TABLE {} (id INT, old STRING, gone INT, part STRING, s STRUCT<a: INT, b: STRING>) USING "
            f"delta PARTITIONED BY (part) TBLPROPERTIES ('delta.columnMapping.mode'='name', {VECTORS})"
        ),
        (
            "INSERT INTO {} SELECT /*+ COALESCE(1) */ * FROM VALUES (1, 'a', 1, 'x y', named_struct('a', 1, "
            "'b', 'p')), (2, 'b', 2, NULL, NULL), (3, 'c', 3, 'x y', NULL) AS t(a, b, c, d, e)"
        ),
        "ALTER TABLE {} RENAME COLUMN old TO new",
        "ALTER TABLE {} RENAME COLUMN s.a TO b2",
        "ALTER TABLE {} DROP COLUMN gone",
        "ALTER TABLE {} ADD COLUMN (gone STRING)",
        "INSERT INTO {} VALUES (4, 'd', 'x y', named_struct('b2', 4, 'b', 'q'), 'back')",
        "ALTER TABLE {} RENAME COLUMN part TO area",
        "DELETE FROM {} WHERE id = 3",
    ],
    "numbered": [
        (
            "CREATE TABLE {} (id INT, s STRUCT<a: INT, b: STRING>) USING delta "
            "TBLPROPERTIES ('delta.columnMapping.mode'='id')"
        ),
        "INSERT INTO {} VALUES (1, named_struct('a', 1, 'b', 'x'))",
        "ALTER TABLE {} RENAME COLUMN s.a TO first",
        "ALTER TABLE {} RENAME COLUMN id TO key",
        "INSERT INTO {} VALUES (2, named_struct('first', 2, 'b', 'y'))",
    ],
    "wide": [
        (
            "CREATE TABLE {} (id INT, n SMALLINT, f FLOAT) USING delta "
            "TBLPROPERTIES ('delta.enableTypeWidening'='true')"
        ),
        "INSERT INTO {} VALUES (1, 1S, CAST(0.5 AS FLOAT))",
        "ALTER TABLE {} ALTER COLUMN id TYPE BIGINT",
        "ALTER TABLE {} ALTER COLUMN f TYPE DOUBLE",
        "INSERT INTO {} VALUES (5000000000, 2S, 0.25)",
    ],
    "checkpoints": [
        (
            "CREATE TABLE {} (id INT) USING delta "
            "TBLPROPERTIES ('delta.checkpointPolicy'='v2', 'delta.checkpointInterval'='2')"
        ),
        *(f"INSERT INTO {{}} VALUES ({number})" for number in range(3)),
    ],
    "instants": [  # as Spark writes them unless told otherwise: INT96
        "SET spark.sql.parquet.outputTimestampType=INT96",
        "CREATE TABLE {} (id INT, at TIMESTAMP) USING delta",
        "INSERT INTO {} VALUES (1, TIMESTAMP'2024-07-01 12:00:00.123456'), (2, NULL)",
    ],
}


def session() -> SparkSession:
    """Start Spark with Delta Lake; its times are those of UTC."""
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        **jars(DELTA),
    }
    builder = SparkSession.builder.master("local[1]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


if __name__ == "__main__":
    spark = session()
    for name, statements in STATEMENTS.items():
        shutil.rmtree(FOLDER / name, ignore_errors=True)
        for statement in statements:
            spark.sql(statement.format(f"delta.`{FOLDER / name}`"))
    spark.stop()
    for crc in FOLDER.rglob("*.crc"):
        crc.unlink()
