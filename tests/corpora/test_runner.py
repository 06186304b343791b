"""The runner itself: what it counts, and that no file ends it."""

import json
import os
import signal
import subprocess
import sys
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_ducklake.lake.errors import InvalidInputError, SparkJobError, StorageError
from tests.corpora.listing import KNOWN, public_files
from tests.corpora.outcomes import AtDoor, FileReport, Outcome, failures, lines, of_error, summary
from tests.corpora.workers import TaskError, TimeLimitError, Worker, WorkerEndedError

pytestmark = [pytest.mark.daily, pytest.mark.drawn(one_in=1)]


def serve():
    return lambda name, *arguments: {"abort": _abort, "sleep": time.sleep, "divide": _divide}[name](
        *arguments
    )


def _abort():
    os.write(2, b"terminate called\n")
    os.kill(os.getpid(), signal.SIGABRT)


def _divide(one, other):
    return one / other


def test_a_worker_counts_what_ends_it_and_goes_on():
    with Worker(serve, seconds=1) as worker:
        assert worker.do("divide", 6, 3) == 2
        with pytest.raises(WorkerEndedError, match="SIGABRT: terminate called"):
            worker.do("abort")
        assert worker.do("divide", 1, 2) == 0.5
        with pytest.raises(TimeLimitError, match="1 s"):
            worker.do("sleep", 60)
        with pytest.raises(TaskError, match="ZeroDivisionError"):
            worker.do("divide", 1, 0)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (InvalidInputError("source cannot be read: column a is FLOAT16."), Outcome.REFUSED),
        (InvalidInputError("source: org.apache.spark.SparkException: no"), Outcome.RAW),
        (StorageError("Cannot read the Parquet footer."), Outcome.RAW),
        (SparkJobError("Py4JJavaError: an error occurred"), Outcome.RAW),
        (ValueError("no"), Outcome.RAW),
    ],
)
def test_only_a_sentence_that_is_not_retried_is_a_refusal(error, outcome):
    assert of_error(error)[0] is outcome


def report(name: str, *outcomes: Outcome, **said: str) -> FileReport:
    doors = {door: AtDoor(one, str(one)) for door, one in zip("abc", outcomes, strict=False)}
    return FileReport(name, "parquet", name, doors=doors, **said)


def test_the_report_counts_lists_and_says_what_fraction_goes_through_all_doors():
    same, raw = Outcome.SAME, Outcome.RAW
    found = [
        report("1", same, Outcome.ARROW, same),
        report("2", same, Outcome.REFUSED, same),
        report("3", raw, same, Outcome.BAD, duckdb="corrupt"),
    ]
    found[2].doors["c"] = AtDoor(Outcome.BAD, "pages", known="corrupt pages")

    text = "\n".join(lines(found))

    assert summary(found)["percent"] == 50.0
    assert [(name, door) for name, door, _ in failures(found)] == [("3", "a")]
    assert "- b: 2: refused by name" in text
    assert "- c: 3: pages [known: corrupt pages]" in text
    assert "Of the 2 files that DuckDB and pyarrow both read, 1 are read by all doors: 50.0 %." in text


@pytest.mark.corpora
def test_a_folder_of_sound_files_passes(tmp_path):
    folder = tmp_path / "some files"
    folder.mkdir()
    pq.write_table(pa.table({"id": [1, 2], "name": ["a", None]}), folder / "sound.parquet")
    (folder / "no file.txt").write_text("not looked at")
    command = [sys.executable, "-m", "tests.corpora", str(folder), "--json", str(tmp_path / "out.json")]

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert "| add_data_files | 1 |" in done.stdout
    (file,) = json.loads((tmp_path / "out.json").read_text())["files"]
    assert {one["outcome"] for one in file["doors"].values()} == {"same rows"}


def test_the_list_is_sound():
    files = public_files()

    assert len({(one.project, one.version, one.path) for one in files}) == len(files)
    assert all(len(one.sha256) == 64 for one in files)
    assert all(one.licence in ("Apache-2.0", "MIT", "BSD-3-Clause") for one in files)
    assert {sha256 for sha256, _ in KNOWN} <= {one.sha256 for one in files}
