"""Files and Parquet, through pyarrow and fsspec; independent of the catalog and of Spark."""
