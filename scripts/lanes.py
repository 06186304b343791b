"""Run lanes of the tests one after the other; at the end, say which ran, with how many tests, in what time.

python scripts/lanes.py kills cluster         # at CI's size
python scripts/lanes.py --size full           # every lane: what make test-full does
python scripts/lanes.py kills -- -k compaction   # what follows -- goes to pytest
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.lanes import LANES, PYTEST  # noqa: E402

_COUNTS = re.compile(r"(\d+) (passed|failed|errors?|skipped|xfailed)\b")


def main() -> int:
    """Run what the arguments name; the exit code is 1 when a lane failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("lanes", nargs="*", choices=[*LANES, []], help="default: all of them")
    parser.add_argument("--size", choices=["ci", "full"], default="ci")
    place = [*sys.argv, "--"].index("--")
    own, more = sys.argv[1:place], sys.argv[place + 1 :]
    arguments = parser.parse_args(own)
    rows = [run(name, arguments.size, more) for name in arguments.lanes or LANES]
    print(f"\n{'lane':<11}{'outcome':<9}{'seconds':>8}  what ran")
    for row in rows:
        print("{:<11}{:<9}{:>8}  {}".format(*row))
    return int(any(outcome != "ok" for _, outcome, _, _ in rows))


def run(name: str, size: str, more: list[str]) -> tuple[str, str, int, str]:
    """Run a lane, with its output, and return its row."""
    command = [*(LANES[name].command or (*PYTEST, "--lane", name)), *more]
    if PYTEST[-1] in command:
        command += ["--size", size]
    print(f"=== {name}: {' '.join(command)}", flush=True)
    began, said = time.monotonic(), b""
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        while process.stdout and (more_said := os.read(process.stdout.fileno(), 65_536)):
            sys.stdout.buffer.write(more_said)
            sys.stdout.buffer.flush()
            said = (said + more_said)[-10_000:]
    last: list[tuple[str, str]] = []
    for line in said.decode(errors="replace").splitlines():
        last = _COUNTS.findall(line) or last
    outcome = "ok" if process.returncode == 0 else f"FAILED {process.returncode}"
    return name, outcome, round(time.monotonic() - began), ", ".join(map(" ".join, last))


if __name__ == "__main__":
    sys.exit(main())
