"""The lanes of the tests: what runs with every change, and what runs before a change that calls for it.

A folder names the lane of its tests, or a mark of a module, a test or a parameter does: `@pytest.mark.kills`.
Of some tests in the lane `daily` a run draws a part, by its seed (`DRAWN`, or the mark `drawn`).
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import PurePosixPath

import pytest

ROOT = "tests/"


@dataclass(frozen=True)
class Lane:
    """What a lane protects, and the changes before which it runs: parts of the paths of what changed.

    ``command`` runs what no mark chooses; the others are chosen by ``--lane``.
    """

    protects: str
    before: tuple[str, ...] = ()
    command: tuple[str, ...] = ()


PYTEST = ("pytest", "-n", "2", "--dist", "loadgroup", "--no-loadscope-reorder")
_CONNECT = (*PYTEST, "--lane", "fast,daily,corpora", "--spark", "connect", "tests/spark")
_ICEBERG = (
    "python",
    "scripts/spark_peers.py",
    "python",
    "-m",
    "pytest",
    "--confcutdir=tests/iceberg",
    "tests/iceberg",
)
LANES = {
    "fast": Lane("pure rules: no process, no socket, no database"),
    "daily": Lane("each verb against DuckDB, each operator in a task of Airflow, a dozen spark-submits"),
    "submits": Lane("real spark-submits beyond that dozen", ("operators", "hooks", "spark")),
    "databases": Lane("every kind of catalog, large ones, and roles", ("catalog",)),
    "cluster": Lane(
        "standalone, YARN, Kubernetes: long jobs, lost executors", ("hooks", "writes", "spark/job")
    ),
    "kills": Lane(
        "processes killed, and faults at each step of a write", ("catalog", "writes", "spark/jobs")
    ),
    "soak": Lane("many clients for minutes, on bad networks and full disks", ("catalog", "storage/files")),
    "corpora": Lane(
        "files that others wrote, each through every door; needs npm and Maven Central",
        ("spark/sources", "spark/reading", "storage/parquet", "storage/arrow", "storage/nested_values"),
    ),
    "services": Lane(
        "scheduler, triggerer, API server as processes", ("triggers", "sensors", "hooks/events")
    ),
    "browser": Lane(
        "Airflow's pages in a browser; needs chromium", ("hooks", "assets", "operators/base", "docs/images")
    ),
    "connect": Lane("tests/spark through a Spark Connect server", ("spark",), _CONNECT),
    "oldest": Lane("the oldest Airflow", ("operators", "hooks"), ("python", "scripts/matrix.py", "--oldest")),
    "iceberg": Lane(
        "Iceberg reads our files; needs Maven Central", ("storage/parquet", "storage/deletes"), _ICEBERG
    ),
    "install": Lane(
        "the wheel, as documented",
        ("pyproject.toml", "docs/quickstart.md"),
        ("python", "-u", "scripts/install_test.py"),
    ),
    "bench": Lane(
        "each benchmark begins and ends, at a smoke size",
        ("benchmarks",),
        ("python", "scripts/bench.py", "--smoke"),
    ),
}
MARKS = tuple(name for name, lane in LANES.items() if not lane.command)
# The lane of each folder of tests.
FOLDERS = {
    "airflow": "daily",
    "browser": "browser",
    "catalogs": "daily",
    "concurrency": "daily",
    "corpora": "corpora",
    "differential": "daily",
    "faults": "soak",
    "interop": "daily",
    "properties": "fast",
    "reference": "daily",
    "spark": "daily",
    "unit": "fast",
}
DAY = "day"  # what `make test` runs: the lanes fast and daily, of which it draws a part
# Folders of which a day draws one test in so many.
DRAWN = {"concurrency": 8, "differential": 10, "interop": 15, "reference": 2, "spark": 13}

# Tests that share a server or a Spark run on one worker; other files each run on one. These begin first.
GROUPS = {
    "browser": ("browser/",),
    "spark": ("spark/",),
    "connect": (
        "airflow/test_example_dags.py",
        "airflow/test_lineage.py",
        "airflow/test_maintenance.py",
        "airflow/test_row_change_operators.py",
        "airflow/test_spark_connect.py",
        "airflow/test_staged.py",
    ),
    "cluster": (
        "airflow/test_cluster_faults.py",
        "airflow/test_long_jobs.py",
        "airflow/test_long_jobs_services.py",
    ),
    "yarn": ("airflow/test_yarn.py",),
    # two Sparks must not download one jar at once
    "s3": ("airflow/test_s3.py",),
}
_LAST = (
    "airflow/",
    "interop/",
    "differential/",
    "concurrency/",
    "catalogs/",
    "reference/",
    "properties/",
    "unit/",
)


class NoLaneError(Exception):
    """A test is in no lane, or in two."""


def folder_of(item: pytest.Item) -> str:
    """Return the folder of tests/ that a test is in, however deep."""
    return PurePosixPath(item.nodeid.partition("::")[0]).parts[1]


def lane_of(item: pytest.Item) -> str:
    """Return the lane of a test: of the closest of its marks, else of its folder."""
    parameters = item.callspec.marks if hasattr(item, "callspec") else ()
    for marks in (parameters, *(node.own_markers for node in reversed(item.listchain()))):
        marked = {mark.name for mark in marks} & set(MARKS)
        if len(marked) > 1:
            raise NoLaneError(
                f"{item.nodeid} is marked for {' and '.join(sorted(marked))}: one of them is enough."
            )
        if marked:
            return marked.pop()
    folder = folder_of(item)
    if folder not in FOLDERS:
        raise NoLaneError(f"{item.nodeid} is in no lane: name its folder in tests/lanes.py, or mark it.")
    return FOLDERS[folder]


def lanes_of_run(option: argparse.Namespace) -> frozenset[str]:
    """Return the lanes that `--lane` names."""
    names = option.lane.split(",")
    known = {name: (name,) for name in MARKS} | {"all": MARKS, DAY: ("fast", "daily")}
    if unknown := set(names) - known.keys():
        raise NoLaneError(f"--lane {', '.join(sorted(unknown))}: the lanes are {', '.join(known)}.")
    return frozenset(lane for name in names for lane in known[name])


def group_of(nodeid: str) -> str:
    """Return what a test runs on one worker with: those of its server, else those of its file."""
    path = nodeid.partition("::")[0].removeprefix(ROOT)
    return next((name for name, places in GROUPS.items() if path.startswith(places)), path)


def place_of(nodeid: str) -> int:
    """Return when a test begins: the long groups first, so that none is left alone at the end."""
    group = group_of(nodeid)
    if group in GROUPS:
        return list(GROUPS).index(group)
    return len(GROUPS) + next(
        (place for place, folder in enumerate(_LAST) if group.startswith(folder)), len(_LAST)
    )


if __name__ == "__main__":
    for name, lane in LANES.items():
        print(f"  make test-{name:<10} {lane.protects}")  # noqa: T201 - for make help
