"""Scan plans and change feeds as Spark DataFrames."""
