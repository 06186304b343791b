"""Every promotion that we allow is one that the reference allows too."""

import duckdb
import pytest

from airflow_provider_ducklake.lake.format.types.ducklake_types import (
    NOT_STORABLE,
    SCALARS,
    can_promote,
    parse_type,
)
from tests.reference.duckdb_lake import open_lake

TYPES = [
    *sorted(SCALARS.keys() - NOT_STORABLE),
    *("decimal(9,2)", "decimal(18,2)", "decimal(18,4)", "decimal(10,3)", "decimal(38,2)"),
]
OURS = [
    (old, new)
    for old in TYPES
    for new in TYPES
    if old != new and can_promote(parse_type(old), parse_type(new))
]
DUCKDB = {
    "timestamp_s": "TIMESTAMP_S",
    "timestamptz": "TIMESTAMPTZ",
    "float32": "FLOAT",
    "float64": "DOUBLE",
} | {
    f"{prefix}int{bits}": f"{prefix}{word}"
    for prefix in ("", "u")
    for bits, word in ((8, "tinyint"), (16, "smallint"), (32, "integer"), (64, "bigint"))
}


def test_the_reference_takes_each_of_our_promotions(sqlite_catalog):
    refused = []
    with open_lake(sqlite_catalog) as lake:
        for number, (old, new) in enumerate(OURS):
            lake.sql(f"CREATE TABLE t{number} (c {DUCKDB.get(old, old)})")
            try:
                lake.sql(f"ALTER TABLE t{number} ALTER COLUMN c SET DATA TYPE {DUCKDB.get(new, new)}")
            except duckdb.Error as error:
                refused.append((old, new, str(error)))

    assert refused == []
    assert len(OURS) > 20


@pytest.mark.parametrize(("old", "new"), [("int64", "int32"), ("varchar", "int64"), ("int64", "varchar")])
def test_what_both_refuse(sqlite_catalog, old, new):
    assert not can_promote(parse_type(old), parse_type(new))
    with open_lake(sqlite_catalog) as lake:
        lake.sql(f"CREATE TABLE t (c {DUCKDB.get(old, old)})")
        with pytest.raises(duckdb.Error, match="widening"):
            lake.sql(f"ALTER TABLE t ALTER COLUMN c SET DATA TYPE {DUCKDB.get(new, new)}")
