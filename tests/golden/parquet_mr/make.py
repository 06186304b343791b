"""Records what Spark's writer puts into footers; run it and the files land beside it."""

import shutil
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

QUERIES = {
    "nan": "SELECT * FROM VALUES (1.0D), (double('nan')), (-1.0D) t(c)",
    "all_nan": "SELECT * FROM VALUES (double('nan')), (double('nan')) t(c)",
    "no_nan": "SELECT * FROM VALUES (1.0D), (-1.0D), (CAST(NULL AS DOUBLE)) t(c)",
    "zeros": "SELECT * FROM VALUES (0.0D), (-0.0D) t(c)",
    "all_null": "SELECT CAST(NULL AS DOUBLE) c",
    "float_nan": "SELECT float('nan') c UNION ALL SELECT CAST(NULL AS FLOAT)",
    "text_300": "SELECT * FROM VALUES (repeat('a', 300)), ('b'), (NULL) t(c)",
    "text_5000": "SELECT * FROM VALUES (repeat('a', 5000)), ('b'), (NULL) t(c)",
    "text_cut": "SELECT * FROM VALUES ('abcdef'), ('abcxyz'), ('abd'), (NULL) t(c)",
}
OPTIONS = {"text_cut": {"parquet.statistics.truncate.length": "3"}}

if __name__ == "__main__":
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    for name, query in QUERIES.items():
        with tempfile.TemporaryDirectory() as folder:
            writer = spark.sql(query).coalesce(1).write.mode("overwrite")
            writer.options(**OPTIONS.get(name, {})).parquet(folder)
            (part,) = Path(folder).glob("*.parquet")
            shutil.copy(part, Path(__file__).with_name(f"{name}.parquet"))
    spark.stop()
