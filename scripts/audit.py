"""Compare the locked dependencies, and the oldest that pyproject.toml allows, with advisories in a file.

The file is a JSON list of records in OSV's format (https://ossf.github.io/osv-schema/), or one record a line,
as OSV's archive of an ecosystem has them. For machines without a way to the service that `uv audit` asks.
"""

import argparse
import json
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).parent.parent
LOCKS = ("uv.lock", "tests/reference/next/uv.lock")

Record = dict[str, Any]  # of OSV


def main() -> int:
    """Print what is affected; the exit code is 1 if something is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("advisories", type=Path)
    records = read_records(parser.parse_args().advisories.read_text(encoding="utf-8"))
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    asked = [
        *oldest_allowed(project),
        *(one for lock in LOCKS for one in locked(lock, (ROOT / lock).read_text(encoding="utf-8"))),
    ]
    found = list(affected(asked, records))
    for line in found:
        print(line)
    print(f"Compared {len(asked)} versions with {len(records)} advisories: {len(found)} are affected.")
    return 1 if found else 0


def read_records(text: str) -> list[Record]:
    """Return the records that were not withdrawn; a file of anything else is an error."""
    stripped = text.lstrip()
    found = (
        json.loads(text)
        if stripped.startswith("[")
        else [json.loads(line) for line in text.splitlines() if line.strip()]
    )
    if not found or not all(isinstance(one, dict) and "id" in one and "affected" in one for one in found):
        raise SystemExit("The file is no list of OSV records, each with an id and affected packages.")
    return [one for one in found if not one.get("withdrawn")]


def locked(lock: str, text: str) -> Iterator[tuple[str, str, str]]:
    """Yield the packages of a lock file: where they stand, name, and version."""
    for package in tomllib.loads(text)["package"]:
        if "registry" in package["source"]:
            yield lock, canonicalize_name(package["name"]), package["version"]


def oldest_allowed(project: str) -> Iterator[tuple[str, str, str]]:
    """Yield the lower bounds of a project's dependencies: the requirement, name, and version."""
    document = tomllib.loads(project)
    groups = document.get("dependency-groups", {}).values()
    extras = document["project"].get("optional-dependencies", {}).values()
    listed = [document["project"].get("dependencies", []), *extras, *groups]
    for text in dict.fromkeys(one for group in listed for one in group if isinstance(one, str)):
        requirement = Requirement(text)
        for one in requirement.specifier:
            if one.operator in (">=", "==", "~=") and not one.version.endswith("*"):
                yield f"pyproject.toml, {text}", canonicalize_name(requirement.name), one.version


def affected(asked: Iterable[tuple[str, str, str]], records: Iterable[Record]) -> Iterator[str]:
    """Yield a line for each version that an advisory affects."""
    by_name: dict[str, list[tuple[Record, Record]]] = {}
    for record in records:
        for part in record["affected"]:
            package = part.get("package", {})
            if package.get("ecosystem", "").partition(":")[0] == "PyPI":
                by_name.setdefault(canonicalize_name(package["name"]), []).append((record, part))
    for where, name, version in asked:
        for record, part in by_name.get(name, ()):
            if is_affected(Version(version), part):
                fixed = ", ".join(events_of(part, "fixed")) or "no version yet"
                names = ", ".join([record["id"], *record.get("aliases", [])])
                yield f"{where}: {name} {version} is affected by {names}; fixed in {fixed}."


def events_of(part: Record, kind: str) -> list[str]:
    """Return the versions of events of a kind, such as fixed."""
    ranges = [one for one in part.get("ranges", ()) if one["type"] == "ECOSYSTEM"]
    return [event[kind] for one in ranges for event in one["events"] if kind in event]


def is_affected(version: Version, part: Record) -> bool:
    """Whether an affected package lists the version, or a range of it has the version."""
    if any(parsed(one) == version for one in part.get("versions", ())):
        return True
    ranges = (one["events"] for one in part.get("ranges", ()) if one["type"] == "ECOSYSTEM")
    return any(_is_within(version, events) for events in ranges)


def _is_within(version: Version, events: list[dict[str, str]]) -> bool:
    """Whether a version is affected after the events up to it; "0" is before all versions."""
    is_in = False
    order = ("introduced", "fixed", "last_affected")
    known = [
        (at, order.index(kind))
        for event in events
        for kind, text in event.items()
        if kind in order and (at := parsed(text)) is not None
    ]
    for at, place in sorted(known):
        kind = order[place]
        if kind == "introduced" and version >= at:
            is_in = True
        elif (kind == "fixed" and version >= at) or (kind == "last_affected" and version > at):
            is_in = False
    return is_in


def parsed(text: str) -> Version | None:
    """Return a version as Python orders them; None: it is none."""
    try:
        return Version(re.sub(r"^v", "", text))
    except InvalidVersion:
        return None


if __name__ == "__main__":
    sys.exit(main())
