"""A process that writes to a lake whose disk has room for little.

    unshare … python -m tests.faults.small_disk <scenario> <catalog url> <folder of the small disk>

It mounts the disk in a namespace of its own, so that nobody else sees it and it ends with the process, and
prints what came of each step as a JSON list.
"""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from airflow_provider_ducklake.lake.catalog.lake import Lake

ROOT = Path(__file__).parents[2]
SIZE = 2 * 2**20


def run(scenario: str, url: str, disk: Path) -> list[Any]:
    """Run a scenario in a process with a small disk at a folder."""
    inner = f'mount -t tmpfs -o size={SIZE} small "$1" && exec "$2" -m tests.faults.small_disk "$3" "$4" "$1"'
    shell = ["sh", "-c", inner, "sh", str(disk), sys.executable, scenario, url]
    namespaces = [] if os.geteuid() == 0 else ["--map-root-user"]
    found = subprocess.run(
        ["unshare", "--mount", *namespaces, *shell],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout.splitlines()[-1])


def files_below(folder: Path) -> list[str]:
    return sorted(str(one.relative_to(folder)) for one in folder.rglob("*") if one.is_file())


def outcome(act: Callable[[], object]) -> str:
    """Return the type of the error that an act raises, or ``done``."""
    try:
        act()
    except Exception as error:  # noqa: BLE001 - the test judges it
        return type(error).__name__
    return "done"


def noise(count: int) -> pa.Table:
    """Return rows that no codec makes much smaller."""
    return pa.table({"i": list(range(count)), "b": [os.urandom(1000) for _ in range(count)]})


def data_is_on_it(url: str, disk: Path) -> list[Any]:
    """Append more than the disk holds, then little."""
    data = disk / "data"
    data.mkdir()
    with Lake.create(url, f"{data}/") as lake:
        with lake.transaction() as tx:
            tx.create_table("t", {"i": "int64", "b": "blob"})
        lake.set_option("data_inlining_row_limit", 0)
        lake.append_arrow("t", noise(10))
        before, head = files_below(data), lake.current_snapshot().id
        failed = outcome(lambda: lake.append_arrow("t", noise(4000)))
        in_two = outcome(lambda: _append_and_append(lake))
        is_unchanged = (files_below(data), lake.current_snapshot().id) == (before, head)
        after = outcome(lambda: lake.append_arrow("t", noise(10)))
        return [failed, in_two, is_unchanged, after, lake.row_count("t"), len(lake.verify())]


def _append_and_append(lake: Lake) -> None:
    with lake.transaction() as tx:  # the first file is whole when the second does not fit
        tx.append_arrow("t", noise(50))
        tx.append_arrow("t", noise(4000))


def catalog_is_on_it(url: str, disk: Path) -> list[Any]:
    """Commit where the catalog can hardly grow: each time with more room for it, until it succeeds."""
    data = Path(url.removeprefix("sqlite:///")).parent / "data"
    url = f"sqlite:///{disk}/catalog.sqlite"
    filler = disk / "filler"
    found: list[Any] = []
    with Lake.create(url, f"{data}/") as lake:
        with lake.transaction() as tx:
            tx.create_table("t", {"i": "int64", "b": "blob"})
            tx.create_table("f", {"i": "int64", "b": "blob"})
            tx.set_option("f", "data_inlining_row_limit", 0)
            tx.set_option("t", "data_inlining_row_limit", 1000)
        for room in (0, 8, 24, 64, 160, 512):
            head, before = lake.current_snapshot().id, files_below(data)
            fill(filler, disk, room * 1024)
            failed = outcome(lambda: _append_to_both(lake))
            is_unchanged = (lake.current_snapshot().id, files_below(data)) == (head, before)
            found.append([failed, is_unchanged])
            filler.unlink()
        after = outcome(lambda: _append_to_both(lake))
        return [found, after, lake.row_count("t"), lake.row_count("f"), len(lake.verify())]


def _append_to_both(lake: Lake) -> None:
    with lake.transaction() as tx:
        tx.append_arrow("f", noise(20))
        tx.append_arrow("t", noise(100))  # to the catalog: 100 KB


def fill(filler: Path, disk: Path, room: int) -> None:
    """Leave so many bytes of a disk."""
    stat = os.statvfs(disk)
    with filler.open("wb") as file:
        file.write(bytes(max(0, stat.f_bavail * stat.f_frsize - room)))


SCENARIOS = {one.__name__: one for one in (data_is_on_it, catalog_is_on_it)}

if __name__ == "__main__":
    logging.disable()
    scenario, url, folder = sys.argv[1:]
    print(json.dumps(SCENARIOS[scenario](url, Path(folder))))  # noqa: T201 - read by the test
