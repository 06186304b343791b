"""Check what the documented install commands resolve to today: pyspark as it is tested, and its client too.

A lock file says what we test, not what users get. ``uv pip compile`` answers that from the package index.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import requires, version
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
NAME = "airflow-provider-ducklake-spark"
SPARK = ("pyspark", "pyspark-client")
_COMMAND = re.compile(rf"{NAME}\[([\w,-]+)\]")
_PIN = re.compile(r"^([\w.-]+)==(\S+)", re.MULTILINE)


def main() -> int:
    """Print each problem; the exit code is 1 when there is one."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    known = set(project["project"]["optional-dependencies"])
    documented = documented_extras()
    problems = [
        f"{NAME}[{','.join(sorted(extras))}] in a guide: unknown are {', '.join(sorted(extras - known))}"
        for extras in documented
        if extras - known
    ]
    stated = project["tool"]["uv"]["dependency-metadata"]
    problems += missing_metadata(project["project"]["optional-dependencies"]["pyspark"], stated)
    problems += wrong_metadata(stated)
    to_resolve = {extras for extras in documented if "pyspark" in extras} | {frozenset(known)}
    for extras in sorted(to_resolve, key=sorted) if not problems else ():
        problems += problems_of(extras & known)
    for problem in problems:
        print(problem, file=sys.stderr)
    if not problems:
        print(f"{len(documented)} documented sets of extras; pyspark resolves to {version('pyspark')}")
    return 1 if problems else 0


def documented_extras() -> set[frozenset[str]]:
    """Return the extras of every install command in the guides."""
    texts = (page.read_text() for page in PAGES)
    return {frozenset(found.split(",")) for text in texts for found in _COMMAND.findall(text)}


def missing_metadata(pins: list[str], stated: list[dict[str, Any]]) -> list[str]:
    """Name pins without dependency-metadata: to resolve them would unpack 1.4 GB into uv's cache."""
    versions = {one["name"]: one["version"] for one in stated}
    return [
        f"{pin} has no dependency-metadata in pyproject.toml: add it"
        for pin in pins
        if not Requirement(pin).specifier.contains(versions.get(Requirement(pin).name, "0"))
    ]


def wrong_metadata(stated: list[dict[str, Any]]) -> list[str]:
    """Compare what ``pyproject.toml`` says of dependencies with what those installed say, but for extras."""
    return [
        f"{one['name']} {version(one['name'])} requires other things than dependency-metadata says: mend it"
        for one in stated
        if one["version"] != version(one["name"])
        or {Requirement(text) for text in one["requires-dist"]} != _requirements(one["name"])
    ]


def _requirements(name: str) -> set[Requirement]:
    found = {Requirement(text) for text in requires(name) or []}
    return {one for one in found if not (one.marker and "extra ==" in str(one.marker))}


def problems_of(extras: frozenset[str]) -> list[str]:
    """Resolve the provider with extras, as pip would in an empty environment."""
    command = ["uv", "pip", "compile", "pyproject.toml", "--quiet", "--no-header", "--no-annotate"]
    for extra in sorted(extras):
        command += ["--extra", extra]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    wanted = f"{NAME}[{','.join(sorted(extras))}]"
    if done.returncode != 0:
        return [f"{wanted} cannot be resolved: {done.stderr.strip()}"]
    found = dict(_PIN.findall(done.stdout))
    return [
        f"{wanted} resolves to {name} {found.get(name)}, tested is {version(name)}: pin it in pyproject.toml"
        for name in SPARK
        if found.get(name) != version(name)
    ]


if __name__ == "__main__":
    sys.exit(main())
