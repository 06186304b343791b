"""Run chosen tests with other versions than the locked ones, each combination in an environment of its own.

    make matrix                                    # every cell, then docs/compatibility.md
    make matrix ARGS="--list"                      # the cells, and what came of each
    make matrix ARGS="--only 4.3.0 --workers 2"    # the cells whose names contain one of the words
    make matrix ARGS="--missing"                   # the cells that have not passed yet
    make matrix ARGS="--oldest"                    # the oldest Airflow, all else as locked: what CI runs
    make matrix ARGS="--write"                     # only the page, from scripts/matrix_results.json

It needs the package index, and a Python of each version on the PATH. An environment takes 1.5 GB, and is
removed after its cell; logs stay in ``build/matrix``.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from importlib.metadata import version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from scripts import matrix_page
from scripts.matrix_cells import AXES, CELLS, Cell
from scripts.matrix_environment import OLDEST_TESTS, Outcome, run


def main() -> int:
    """Do what the arguments say; the exit code is 1 when a cell failed."""
    arguments = _parser().parse_args()
    if arguments.oldest:
        return _run_oldest(keep=arguments.keep)
    known = matrix_page.read_results()
    chosen = [cell for cell in CELLS if any(word in cell.name for word in arguments.only or [""])]
    if arguments.missing:
        chosen = [cell for cell in chosen if cell.name not in known or known[cell.name].failures]
    if arguments.list:
        for cell in chosen:
            print(f"{cell.name:44} {matrix_page.result_of(known.get(cell.name))}")
        return 0
    is_fine = arguments.write or _run_all(chosen, workers=arguments.workers, keep=arguments.keep)
    matrix_page.write_page()
    return 0 if is_fine else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Run the cells of the support matrix.")
    parser.add_argument(
        "--only", nargs="+", metavar="WORD", help="cells whose names contain one of the words"
    )
    parser.add_argument("--missing", action="store_true", help="those of them that have not passed yet")
    parser.add_argument(
        "--oldest", action="store_true", help="run Airflow's tests with the oldest Airflow; keep no result"
    )
    parser.add_argument("--workers", type=int, default=1, help="cells at the same time")
    parser.add_argument("--keep", action="store_true", help="leave the environments in build/matrix")
    parser.add_argument("--list", action="store_true", help="show the cells and run nothing")
    parser.add_argument("--write", action="store_true", help="write the page and run nothing")
    return parser


def _run_oldest(*, keep: bool) -> int:
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    oldest = Cell(version("pyspark"), AXES["airflow"][0], "sqlite", python, version("duckdb"))
    outcome = run(oldest, keep=keep, tests=OLDEST_TESTS)
    print(f"{oldest.name:44} {matrix_page.result_of(outcome)} in {outcome.seconds} s")
    return 1 if outcome.failures else 0


def _run_all(cells: list[Cell], *, workers: int, keep: bool) -> bool:
    """Run cells and keep what comes of each at once; return whether all passed."""
    is_fine = True
    with ThreadPoolExecutor(workers) as pool:
        running = {pool.submit(run, cell, keep=keep): cell for cell in cells}
        for done in as_completed(running):
            outcome: Outcome = done.result()
            matrix_page.keep(running[done], outcome)
            is_fine = is_fine and not outcome.failures
            print(f"{running[done].name:44} {matrix_page.result_of(outcome)}", flush=True)
    return is_fine


if __name__ == "__main__":
    sys.exit(main())
