"""Fold the fragments of changelog.d/ into CHANGELOG.md (--fold), or check their names and shape (--check)."""

import argparse
import re
import sys
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parent.parent
CHANGELOG = ROOT / "CHANGELOG.md"
FRAGMENTS = ROOT / "changelog.d"
PACKAGE = ROOT / "airflow_provider_ducklake" / "__init__.py"

KINDS = ("breaking", "added", "changed", "fixed")
MARKER = "<!-- releases -->"


def main() -> int:
    """Check, then fold if asked to; the exit code is 1 for ill-formed fragments."""
    parser = argparse.ArgumentParser(description=__doc__)
    wanted = parser.add_mutually_exclusive_group(required=True)
    wanted.add_argument("--check", action="store_true")
    wanted.add_argument("--fold", action="store_true")
    arguments = parser.parse_args()
    fragments = sorted(path for path in FRAGMENTS.iterdir() if path.name != "README.md")
    problems = [problem for fragment in fragments for problem in find_problems(fragment)]
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        return 1
    if arguments.fold:
        fold(fragments)
    return 0


def find_problems(fragment: Path) -> list[str]:
    """Say what is wrong with one fragment's name or text."""
    if not re.fullmatch(rf"[a-z0-9-]+\.({'|'.join(KINDS)})\.md", fragment.name):
        return [f"changelog.d/{fragment.name}: the name must be <id>.<{'|'.join(KINDS)}>.md"]
    text = fragment.read_text(encoding="utf-8")
    if not text.strip():
        return [f"changelog.d/{fragment.name}: is empty"]
    if kind_of(fragment) == "breaking" and "Migration:" not in text:
        return [f"changelog.d/{fragment.name}: a breaking change needs a line that starts with 'Migration:'"]
    return []


def fold(fragments: list[Path]) -> None:
    """Put the fragments under a heading for the current version, and delete them."""
    if not fragments:
        print("changelog.d holds no fragments: nothing to fold")
        return
    changelog = CHANGELOG.read_text(encoding="utf-8")
    CHANGELOG.write_text(changelog.replace(MARKER, f"{MARKER}\n\n{section(fragments)}", 1), encoding="utf-8")
    for fragment in fragments:
        fragment.unlink()
    print(f"folded {len(fragments)} fragments into CHANGELOG.md")


def section(fragments: list[Path]) -> str:
    """Render one release: kinds in the order of KINDS, fragments in the order of their names."""
    version = re.search(r'__version__ = "(.+)"', PACKAGE.read_text(encoding="utf-8"))
    assert version is not None
    lines = [f"## {version[1]} ({datetime.now(UTC).date()})"]
    for kind in KINDS:
        texts = [path.read_text(encoding="utf-8").strip() for path in fragments if kind_of(path) == kind]
        if texts:
            lines += ["", f"### {kind.capitalize()}", ""]
            lines += ["- " + text.replace("\n", "\n  ") for text in texts]
    return "\n".join(lines)


def kind_of(fragment: Path) -> str:
    """Return the kind, the middle part of a fragment's name."""
    return fragment.name.split(".")[-2]


if __name__ == "__main__":
    sys.exit(main())
