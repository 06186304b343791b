"""Run the benchmarks one after the other, best on an idle machine; with --smoke, see that each ends."""

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SMOKE = {
    "backfill": "--days 4 --at-once 2",
    "commit": "--catalog sqlite --writers 1 2 --seconds 0.5",
    "compaction": "--files 20 --more-files 0 --rows 100 --rounds 1",
    "conflicts": "--catalog sqlite --files 100 --commits 3",
    "encryption": "--rows 20000 --rounds 1",
    "expire": "--catalog sqlite --sizes 100",
    "fixed_cost": "--rounds 1",
    "growth": "--catalog sqlite --sizes 100 --appends 10",
    "imports": "",
    "insert_overhead": "--rows 20000 --rounds 1",
    "merge": "--rows 20000 --rounds 1",
    "read": "--rows 20000 --rounds 1",
    "row_deletes": "--files 20 --rows 20000",
    "scale": "--catalog sqlite --percent 0.01 --results build/smoke.json",
    "scan": "--catalog sqlite --files 100 --times 2",
    "shapes": "--rounds 1 --scale 0.01 --no-memory",
    "string_checks": "--rows 20000 --rounds 1",
    "text_sources": "--megabytes 5 --rounds 1",
    "trigger_poll": "--snapshots 100 --sensors 5",
    "variants": "--rows 2000 --rounds 1",
}
HELPERS = {"append_loop", "peer_writer"}


def main() -> int:
    """Print each benchmark's output; the exit code is 1 when one failed."""
    is_smoke, more = "--smoke" in sys.argv, [one for one in sys.argv[1:] if one != "--smoke"]
    names = [file.stem for file in sorted((ROOT / "benchmarks").glob("*.py")) if file.stem not in HELPERS]
    if missing := set(names) ^ SMOKE.keys():
        sys.exit(f"{', '.join(sorted(missing))}: say in scripts/bench.py what a smoke run is")
    failed = []
    for name in names:
        print(f"== {name}", flush=True)
        command = [sys.executable, f"benchmarks/{name}.py", *(SMOKE[name].split() if is_smoke else []), *more]
        began = time.monotonic()
        if subprocess.run(command, cwd=ROOT, check=False).returncode:
            failed.append(name)
        print(f"-- {name}: {time.monotonic() - began:.0f} s", flush=True)
    print(f"{len(names) - len(failed)} passed, {len(failed)} failed {' '.join(failed)}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
