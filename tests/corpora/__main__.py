"""Every Parquet, CSV and JSON file of a folder through every door of a lake, against DuckDB.

make corpora DIR=…                                       # a folder of files, however deep
scripts/run python -m tests.corpora DIR --only nested    # those whose path has a text
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from tests.corpora.outcomes import FileReport, Outcome, failures, lines, summary
from tests.corpora.run import SECONDS, files_of, reports


def main() -> int:
    """Print the report; the exit code is 1 when a file failed."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.corpora",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="a part of the paths of the files")
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help="the time limit of each step of a file"
    )
    parser.add_argument("--json", type=Path, help="where the report goes as JSON, too")
    arguments = parser.parse_args()
    files = files_of(arguments.folder, arguments.only)
    if not files:
        parser.error(f"{arguments.folder} has no Parquet, CSV or JSON file")
    named = [(str(file.relative_to(arguments.folder)), file) for file in files]
    found: list[FileReport] = []
    with tempfile.TemporaryDirectory(prefix="corpora-") as area:
        began = time.monotonic()
        for report in reports(named, Path(area), arguments.seconds):
            found.append(report)
            marks = " ".join(_MARKS[one.outcome] for one in report.doors.values())
            print(
                f"{len(found):>5}/{len(files)} {time.monotonic() - began:>6.0f} s  {marks}  {report.name}",
                file=sys.stderr,
            )
    print("\n".join(lines(found)))
    if arguments.json:
        kinds = dict.fromkeys(report.kind for report in found)
        totals = {kind: summary([report for report in found if report.kind == kind]) for kind in kinds}
        text = json.dumps({"summary": totals, "files": [one.to_json() for one in found]}, indent=1)
        arguments.json.write_text(f"{text}\n")
    return int(bool(failures(found)))


_MARKS = dict(zip(Outcome, ("=", "a", "o", "-", "?", "E", "S", "B", "A", "T"), strict=True))

if __name__ == "__main__":
    sys.exit(main())
