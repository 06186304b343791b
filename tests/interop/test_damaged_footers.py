"""No footer ends the process, whatever it says: pyarrow's accessors of columns abort where C++ throws."""

import subprocess
import sys
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import StorageError
from airflow_provider_ducklake.lake.storage.parquet.footer_scan import scan
from airflow_provider_ducklake.lake.storage.parquet.modules import ModuleKind, ThriftField, write_struct
from tests.interop.damaged_footers import outcomes
from tests.interop.footers import CODEC, chunks_of, edited, footer_of, parquet

CASES = {"ci": 25, "full": 400}
SOAKED = {"ci": 1500, "full": 20_000}
ROWS = 20
TYPES = pa.table(
    {
        "flag": [True, None] * (ROWS // 2),
        "small": pa.array(range(ROWS), pa.int8()),
        "id": pa.array(range(ROWS), pa.int64()),
        "half": pa.array([1.5] * ROWS, pa.float32()),
        "double": [0.5] * ROWS,
        "text": [f"text {number}" for number in range(ROWS)],
        "bytes": pa.array([b"abc"] * ROWS, pa.binary()),
        "amount": pa.array([Decimal("1.5")] * ROWS, pa.decimal128(20, 2)),
        "at": [datetime(2020, 1, 1)] * ROWS,  # noqa: DTZ001 - a timestamp without zone
        "day": [date(2020, 1, 1)] * ROWS,
        "tags": [[1], None] * (ROWS // 2),
        "pair": [{"a": 1, "b": "x"}] * ROWS,
        "map": pa.array([[("k", 1)]] * ROWS, pa.map_(pa.string(), pa.int32())),
    }
)


@pytest.fixture
def area(tmp_path) -> Path:
    """A lake with a table of each kind of file, whose one file is not the lake's own."""
    whole, files = tmp_path / "whole", tmp_path / "files"
    whole.mkdir()
    files.mkdir()
    (whole / "types.parquet").write_bytes(parquet(TYPES, row_group_size=8))
    old = parquet(TYPES.select(["at", "id"]), use_deprecated_int96_timestamps=True)
    (whole / "int96.parquet").write_bytes(old)
    duckdb.sql(
        "COPY (SELECT i, 'POINT (1 2)'::GEOMETRY AS place, uuid() AS u FROM range(3000) t(i)) "
        f"TO '{whole}/places.parquet' (ROW_GROUP_SIZE 2048, GEOPARQUET_VERSION 'V2')"
    )
    columns = {
        "places": {"i": "int64", "place": "geometry", "u": "uuid"},
        "int96": {"at": "timestamp", "id": "int64"},
        "types": TYPES.schema,
    }
    with Lake.create(f"sqlite:///{tmp_path}/catalog.sqlite", f"{tmp_path}/lake/") as lake:
        for path in sorted(whole.iterdir()):
            added = files / path.name
            added.write_bytes(path.read_bytes())
            with lake.transaction() as tx:
                tx.create_table(path.stem, columns[path.stem])
                tx.add_data_files(path.stem, [str(added)])
    return tmp_path


@pytest.mark.parametrize("field", [1, CODEC], ids=["type", "codec"])
@pytest.mark.parametrize("value", [-1, -2, 64, 200])
def test_a_number_that_names_nothing_is_damage(field, value):
    data = parquet({"flag": [True], "text": ["a"]})
    changed = edited(
        data, lambda footer: chunks_of(footer)[0].update({field: ThriftField(ModuleKind.I32, value)})
    )
    _, footer = footer_of(changed)

    with pytest.raises(StorageError, match="column flag has"):
        scan(write_struct(footer), "file")


def check(area: Path, seed: int, count: int) -> None:
    seen = outcomes(area, seed, count)
    wrong = [one for one in seen if one[0] == "!"]
    assert not wrong, "\n".join(wrong)
    assert sum(seen.values()) == 3 * count
    assert seen["answer"]
    assert seen["StorageError"]


def test_a_footer_is_an_answer_or_a_typed_error(area, seed, size):
    check(area, seed, CASES[size])


@pytest.mark.soak
def test_many_footers_are_answers_or_typed_errors(area, seed, size):
    check(area, f"soak {seed}", SOAKED[size])


# Mutated bytes of each format end in the decoder's own error, with little memory.


ROUNDS = 600  # of each decoder


@pytest.mark.drawn(one_in=1)
def test_mutated_bytes_are_read_or_refused_within_a_limit_of_memory(seed):
    """In a process of its own: the limit is one of the process, and would be pytest's."""
    command = [sys.executable, "-m", "tests.interop.fuzzed_decoders", str(seed), str(ROUNDS)]

    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    assert ended.returncode == 0, f"seed {seed}: {ended.stdout[-4000:]}{ended.stderr[-2000:]}"
