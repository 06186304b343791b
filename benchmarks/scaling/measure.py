"""Measure a call in a process of its own: statements, CPU seconds, and by how much its memory grows."""

from __future__ import annotations

import os
import re
import time
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from airflow_provider_ducklake.lake.catalog.lake import Lake
from scaling.cpu import Server
from tests.reference.catalogs import file_catalog
from tests.scale.calls import CALLS, Call, Target
from tests.scale.models import DIRECTIONS, Model, make
from tests.scale.statements import statements

if TYPE_CHECKING:
    from collections.abc import Callable

_FORK = get_context("fork")  # what is imported stays imported
_TURNS = 3
_LONG = 1.0  # seconds; what takes longer is run once


@dataclass(frozen=True, slots=True)
class Figures:
    """What a call took; ``error`` says why it has no figures."""

    statements: int | None = None
    seconds: float | None = None
    megabytes: float | None = None
    error: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return what of it is known."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def warm_up() -> None:
    """Load what calls load, so that no figure has it: each once, on a small lake."""
    with TemporaryDirectory() as folder:
        model = Model(file_catalog("sqlite", Path(folder)), DIRECTIONS["snapshots"], 10)
        make(model)
        with Lake.connect(model.catalog.sqlalchemy_url) as lake:
            for call in CALLS:
                call.run(Target.of(lake, model))


def in_process(work: Callable[[], Any], limit: float) -> Any:  # noqa: ANN401 - what the work returns
    """Do work in a process of its own, and return what it returns; None if it takes longer."""
    ours, theirs = _FORK.Pipe(duplex=False)
    process = _FORK.Process(target=lambda: theirs.send(work()))
    process.start()
    theirs.close()
    try:
        return ours.recv() if ours.poll(limit) else None
    except EOFError:
        return Figures(error="the process died")
    finally:
        process.kill()
        process.join()


def measure(model: Model, call: Call, limit: float) -> Figures:
    """Return what a call on a model takes; it may be given up after ``limit`` seconds."""

    def work() -> Figures:
        try:
            return _measured(model, call)
        except Exception as error:  # noqa: BLE001 - the next call is measured all the same
            return Figures(error=f"{type(error).__name__}: {error}")

    return in_process(work, limit) or Figures(error=f"> {limit:.0f} s")


def _measured(model: Model, call: Call) -> Figures:
    server = Server.at(model.catalog.location) if model.catalog.kind == "postgres" else None
    with Lake.connect(model.catalog.sqlalchemy_url) as lake:
        target = Target.of(lake, model)
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak begins here
        before = _kilobytes("VmRSS")
        with statements() as sent:
            times = [_seconds(call, target, server)]
        grown = _kilobytes("VmHWM") - before
        while len(times) < _TURNS and max(times) < _LONG:
            target = replace(target, turn=target.turn + 1)
            times.append(_seconds(call, target, server))
        return Figures(len(sent), min(times), max(grown, 0) / 1024)


def _seconds(call: Call, target: Target, server: Server | None) -> float:
    """Return the CPU time of this process and of the server."""
    begin, of_server = time.process_time(), server.cpu_seconds() if server else 0.0
    call.run(target)
    used = time.process_time() - begin
    return used + (server.cpu_seconds() - of_server if server else 0.0)


def _kilobytes(name: str) -> int:
    status = Path(f"/proc/{os.getpid()}/status").read_text(encoding="ascii")
    found = re.search(rf"^{name}:\s+(\d+) kB$", status, re.MULTILINE)
    assert found is not None
    return int(found[1])
