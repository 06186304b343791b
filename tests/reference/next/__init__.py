"""The oracles of DuckLake 1.1: ducklakepy and DuckDB 2.0's core, which run in an environment of their own.

`process.py` is the side of the tests, `server.py` the other; `lake.py` and `core.py` are what it serves.
"""
