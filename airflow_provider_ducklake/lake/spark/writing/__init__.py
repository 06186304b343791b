"""Spark DataFrames as data files and delete files."""
