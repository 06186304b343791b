"""Files and Parquet, through pyarrow and fsspec; knows neither the catalog nor Spark."""
