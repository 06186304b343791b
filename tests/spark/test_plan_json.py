"""Plans of reads survive JSON, whatever cells and filters they hold."""

import datetime as dt
import json
import uuid
from dataclasses import replace
from decimal import Decimal
from math import isnan

import pytest

from airflow_provider_ducklake.catalog.lake import Lake
from airflow_provider_ducklake.spark.job.plan_json import decode_cell, decode_read, encode_cell, encode_read
from airflow_provider_ducklake.spec.options import Options
from tests.interop.test_reads_at_every_snapshot import SCENARIOS, TABLE
from tests.reference.duckdb_lake import open_lake

CELLS = [
    *(None, True, 0, -(2**70), "", "é\0", 1.5, -0.0, float("inf"), b"", b"\xff\0", bytearray(b"x")),
    *(Decimal("1.50"), Decimal("-1E+30"), dt.date(1, 1, 1), dt.time(23, 59, 59, 999999), uuid.UUID(int=5)),
    *(dt.datetime.fromisoformat("2024-01-01T00:00:00.000005"), dt.datetime(2024, 1, 1, tzinfo=dt.UTC)),
    *(dt.timedelta(days=-838, microseconds=7), memoryview(b"xy")),
]


@pytest.mark.parametrize(
    "cell", CELLS, ids=lambda cell: f"{type(cell).__name__} {str(cell)[:24]}".split(" at ")[0]
)
def test_cells_come_back_as_they_were(cell):
    found = decode_cell(json.loads(json.dumps(encode_cell(cell), allow_nan=False)))

    assert (found, str(found)) == (
        cell,
        str(bytes(cell) if isinstance(cell, memoryview | bytearray) else cell),
    )


def test_nan_comes_back():
    assert isnan(decode_cell(json.loads(json.dumps(encode_cell(float("nan"))))))


def test_a_cell_of_no_known_type_is_not_sent():
    with pytest.raises(TypeError, match="object"):
        encode_cell(object())


WHERE = [
    None,
    "i = 1 OR (s LIKE 'a%' AND s NOT LIKE '_b')",
    "i IN (1, 2) AND i NOT IN (5) AND s IS NOT NULL AND l IS NULL",
    "st.a >= 1.5 AND i <> 4",
]


@pytest.mark.parametrize("where", WHERE)
def test_plans_come_back_but_for_statistics_and_options(catalog, where):
    with open_lake(catalog) as duck:
        for statement in [TABLE, *SCENARIOS["inlined rows and deletes, flushed"][:-3]]:
            duck.sql(statement)
        duck.sql("ALTER TABLE t ADD COLUMN late DATE DEFAULT '2024-01-01'")
        duck.sql("INSERT INTO t SELECT * FROM t WHERE i < 130")
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        scan = lake.scan("t", columns=("s", "late"), where=where)
        changes = lake.changes("t", 0, lake.current_snapshot().id).plan

    for plan in (scan, changes):
        found = decode_read(json.loads(json.dumps(encode_read(plan), allow_nan=False)))
        assert found == _stripped(plan, found)
    assert scan.inlined_rows
    assert changes.files


def _stripped(plan, like):
    """Return a plan without what stays behind; rows from the database compare as dicts."""
    table = replace(plan.table, partition_spec=None, options=Options({}), files=like.table.files)
    table = replace(table, has_inlined_data=None)
    inlined = "inlined_rows" if hasattr(plan, "inlined_rows") else "inlined"
    parts = tuple(
        replace(part, rows=tuple(dict(row) for row in part.rows)) for part in getattr(plan, inlined)
    )
    plan = replace(plan, table=table, **{inlined: parts})
    if hasattr(plan, "inlined_deletes"):
        files = tuple(replace(one, partition_values=(), partition_id=None) for one in plan.files)
        deletes = {key: tuple(places) for key, places in plan.inlined_deletes.items()}
        return replace(plan, files=files, inlined_deletes=deletes)
    return plan
