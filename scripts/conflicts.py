"""Write the table of docs/conflicts.md from the one that commits use, or check that it is (--check)."""

import argparse
import re
import sys
from pathlib import Path

from airflow_provider_ducklake.lake.transaction.changes_made import ChangeKind
from airflow_provider_ducklake.lake.transaction.conflicts import Operation, Rule, rule_of

PAGE = Path(__file__).parent.parent / "docs" / "conflicts.md"
_MARKS = {
    Rule.FREE: "·",
    Rule.SAME_ID: "✗",
    Rule.SAME_ROWS: "✗ rows",
    Rule.SAME_FILES: "✗ files",
    Rule.SAME_NAME: "✗ name",
    Rule.SAME_SCHEMA: "✗ schema",
    Rule.SAME_OBJECT: "✗ any",
}
_TABLE = re.compile(r"(?<=<!-- table -->\n).*(?=<!-- end -->)", re.DOTALL)


def page() -> str:
    """Return the page with the table of today between its two marks."""
    lines = ["| ours \\ theirs | " + " | ".join(f"`{kind}`" for kind in ChangeKind) + " |"]
    lines.append("|---|" + "---|" * len(ChangeKind))
    for operation in Operation:
        cells = (_MARKS[rule_of(operation, kind)] for kind in ChangeKind)
        lines.append(f"| {operation.value} | " + " | ".join(cells) + " |")
    return _TABLE.sub(lambda _: "\n" + "\n".join(lines) + "\n\n", PAGE.read_text(encoding="utf-8"))


def main() -> int:
    """Write the page, or say whether it is what the table makes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    if not parser.parse_args().check:
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    if PAGE.read_text(encoding="utf-8") != page():
        print("docs/conflicts.md is not what the table makes: run scripts/conflicts.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
