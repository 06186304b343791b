"""Every file of a folder through its doors, each step in a child process."""

import hashlib
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.corpora.doors import (
    ADD,
    APPEND,
    DOORS,
    INTO,
    READERS,
    Verdict,
    format_of,
    serve_plain,
    serve_spark,
)
from tests.corpora.listing import KNOWN, listed
from tests.corpora.outcomes import READ, AtDoor, FileReport, Outcome
from tests.corpora.workers import TaskError, TimeLimitError, Worker, WorkerEndedError

SECONDS = 60.0


@dataclass(frozen=True)
class Workers:
    plain: Worker
    spark: Worker

    def for_door(self, door: str) -> Worker:
        return self.plain if door in (APPEND, ADD) else self.spark


def files_of(folder: Path, only: str = "") -> list[Path]:
    """List the files of a folder that are read, in order; ``only`` is a part of their paths."""
    found = (file for file in folder.rglob("*") if file.is_file() and format_of(file))
    return sorted(file for file in found if only in str(file.relative_to(folder)))


def reports(files: Sequence[tuple[str, Path]], area: Path, seconds: float = SECONDS) -> Iterator[FileReport]:
    """Yield what becomes of each file, of which a name is shown, with lakes below ``area``."""
    with Worker(serve_plain, seconds) as plain, Worker(serve_spark, seconds) as spark:
        for number, (name, file) in enumerate(files):
            folder = area / str(number)
            folder.mkdir(parents=True)
            yield _report(name, file, folder, Workers(plain, spark))
            shutil.rmtree(folder, ignore_errors=True)


def _report(name: str, file: Path, area: Path, workers: Workers) -> FileReport:
    format_ = format_of(file)
    assert format_ is not None
    suffixes = (
        "".join(file.suffixes[-2:]) if file.suffixes[-1].lower() in (".gz", ".bz2", ".zst") else f".{format_}"
    )
    shutil.copyfile(file, area / f"source{suffixes}")
    sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
    report = FileReport(name, "parquet" if format_ == "parquet" else "text", sha256, listed(sha256))
    report.rows, report.duckdb = _asked(workers.plain, "read_by_duckdb", area)
    if format_ == "parquet":
        _, report.pyarrow = _asked(workers.plain, "read_by_pyarrow", area)
    for door in DOORS[report.kind]:
        report.doors[door] = _at_door(door, area, report, workers)
    return report


def _asked(worker: Worker, task: str, area: Path) -> tuple[int | None, str]:
    try:
        rows, reason = worker.do(task, area)
    except (WorkerEndedError, TimeLimitError) as error:
        return None, str(error)
    return rows, _without_folder(reason, area)


def _without_folder(text: str, area: Path) -> str:
    """Return a text that is the same in the next run."""
    return re.sub(rf"(file:(//)?)?{re.escape(str(area))}/", "", text)


def _at_door(door: str, area: Path, report: FileReport, workers: Workers) -> AtDoor:
    if door == APPEND and report.pyarrow:
        return AtDoor(Outcome.UNREADABLE, report.pyarrow)
    if door == INTO and report.duckdb:
        return AtDoor(Outcome.UNREADABLE, report.duckdb)
    began = time.monotonic()
    outcome, reason = _verdict(door, area, workers)
    if report.duckdb and outcome is Outcome.OTHER:
        reason = f"DuckDB cannot read the file: {report.duckdb}"
    reason = _without_folder(reason, area)
    return AtDoor(outcome, reason, round(time.monotonic() - began, 2), KNOWN.get((report.sha256, door), ""))


def _verdict(door: str, area: Path, workers: Workers) -> Verdict:
    verdict = _done(workers.for_door(door), "through", door, area)
    if verdict[0] is Outcome.SAME:
        verdict = _done(workers.plain, "stored", door, area)
    for reader in READERS:
        if verdict[0] in READ:
            worker = workers.spark if reader == READERS[-1] else workers.plain
            read = _done(worker, "read_by_ours", door, area, reader)
            verdict = verdict if read[0] is Outcome.SAME else read
    return verdict


def _done(worker: Worker, *task: Any) -> Verdict:
    try:
        return worker.do(*task)
    except WorkerEndedError as error:
        return Outcome.ABORT, f"{task[0]}: {error}"
    except TimeLimitError as error:
        return Outcome.TIME, f"{task[0]}: {error}"
    except TaskError as error:
        return Outcome.RAW, f"{task[0]}: {error}"
