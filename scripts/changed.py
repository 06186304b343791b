"""Run the tests that are nearest to a change, in whatever lane they are, until a budget of minutes is spent.

    make test-changed                            # since origin/main, or the last commit; 15 minutes
    make test-changed SINCE=HEAD~3 ARGS="--minutes 5"
    make test-changed ARGS="--list"              # what would run, and why

Near is by imports: what mentions a changed name has changed, and so on up to the tests. Objects with many
methods (``FACADES``) hand on only the methods that mention it. A test file is as far away as its shortest
such way; of equally far ones those with the rarer names come first. What a file takes is recorded in
``tests/seconds.json``, by ``--record`` and the JUnit XML of a run with ``--lane all``.
"""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.lanes import LANES, PYTEST  # noqa: E402

SECONDS = ROOT / "tests" / "seconds.json"
SOURCES = ("airflow_provider_ducklake", "example_dags", "tests", "benchmarks", "scripts")
FACADES = (
    "Lake",
    "LakeReads",
    "LakeWrites",
    "LakeMaintenance",
    "LakeTransaction",
    "LakeSession",
    "DuckLakeHook",
)


@dataclass
class Module:
    """A parsed file: what each of its definitions mentions, and where its names come from."""

    mentions: dict[str, set[str]] = field(default_factory=dict)  # definition -> names that it mentions
    methods: dict[str, set[str]] = field(default_factory=dict)  # of a facade: method -> the same
    imports: dict[str, tuple[str, str | None]] = field(
        default_factory=dict
    )  # local name -> module, name there

    @staticmethod
    def of(file: Path, folder: tuple[str, ...] = ()) -> Module:
        """Parse a file; relative imports begin at its folder in the project."""
        module = Module()
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                above = folder[: len(folder) - node.level + 1] if node.level else ()
                source = ".".join([*above, *([node.module] if node.module else [])])
                for one in node.names:
                    module.imports[one.asname or one.name] = (source, one.name)
            elif isinstance(node, ast.Import):
                for one in node.names:
                    module.imports[one.asname or one.name.partition(".")[0]] = (one.name, None)
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and node.name in FACADES:
                module.methods |= {name: _mentioned(part) for part in node.body for name in _defined(part)}
            elif not isinstance(node, ast.Import | ast.ImportFrom):
                for name in _defined(node) or [""]:
                    module.mentions.setdefault(name, set()).update(_mentioned(node))
        return module


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return [one.id for one in targets if isinstance(one, ast.Name)]


def _mentioned(node: ast.AST) -> set[str]:
    names = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
    return names | {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)}


def distances(changed: set[str], modules: dict[str, Module]) -> dict[str, tuple[int, int]]:
    """Return how far away each file is in which something has changed by the files that did.

    Beside it, how many files mention the rarest changed name that this one mentions.
    """
    names = {path: set(modules[path].mentions) for path in changed & modules.keys()}
    methods = {name for path in names for name in modules[path].methods}
    found, distance = dict.fromkeys(changed, 0), 0
    said_in = {path: set().union(*module.mentions.values()) for path, module in modules.items()}
    paths = {_module_name(path): path for path in modules}
    while True:
        distance += 1
        more: dict[str, set[str]] = {}
        more_methods: set[str] = set()
        for path, module in modules.items():
            hits = _changed_names(module, names, paths) | names.get(path, set())
            new = {one for one, said in module.mentions.items() if said & hits or said & methods}
            if new := new - names.get(path, set()):
                more[path] = new
            more_methods |= {one for one, said in module.methods.items() if said & (hits | methods)} - methods
        if not more and not more_methods:
            break
        for path, new in more.items():
            names.setdefault(path, set()).update(new)
            found.setdefault(path, distance)
        methods |= more_methods
    known = methods.union(*(those for path, those in names.items() if path.startswith(SOURCES[0])))
    counts = Counter(name for said in said_in.values() for name in said & known)
    return {
        path: (far, min((counts[name] for name in said_in.get(path, set()) & known), default=0))
        for path, far in found.items()
    }


def _changed_names(module: Module, names: dict[str, set[str]], paths: dict[str, str]) -> set[str]:
    """Return the names of a module, as it calls them, behind which something has changed."""
    hits = set()
    for local, (origin, name) in module.imports.items():
        if (whole := paths.get(f"{origin}.{name}" if name else origin)) in names:
            hits |= names[whole] or {local}  # a module: its members are mentioned
        elif (path := paths.get(origin)) in names and name in names[path]:
            hits.add(local)
    return hits


def _module_name(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def changed_files(since: str) -> set[str]:
    """Return what differs from a commit, committed or not."""
    if not since:
        is_clean = not _git("status", "--porcelain")
        is_known = (
            subprocess.run(
                ["git", "rev-parse", "-q", "--verify", "origin/main"],
                cwd=ROOT,
                check=False,
                capture_output=True,
            ).returncode
            == 0
        )
        is_ahead = is_known and _git("rev-parse", "HEAD") != _git("rev-parse", "origin/main")
        since = "origin/main" if is_ahead else "HEAD~1" if is_clean else "HEAD"
    print(f"changed since {since}:", end=" ")
    return {*_git("diff", "--name-only", since), *_git("ls-files", "--others", "--exclude-standard")}


def _git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def record(report: Path) -> None:
    """Keep what each test file takes, by the JUnit XML of a run."""
    seconds: dict[str, float] = defaultdict(float)
    for case in ET.parse(report).iter("testcase"):  # noqa: S314 - pytest's own
        seconds[case.get("classname", "").replace(".", "/") + ".py"] += float(case.get("time", 0))
    SECONDS.write_text(
        json.dumps({name: round(one, 1) for name, one in sorted(seconds.items())}, indent=0) + "\n"
    )


def main() -> int:
    """Choose the test files and run them; the exit code is pytest's."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--since", default="", help="a commit")
    parser.add_argument(
        "--minutes", type=float, default=15, help="budget, by what was recorded; 0: all that is near"
    )
    parser.add_argument("--list", action="store_true", help="show the files, and run nothing")
    parser.add_argument("--record", type=Path, help=argparse.SUPPRESS)
    arguments, more = parser.parse_known_args()
    if arguments.record:
        record(arguments.record)
        return 0
    modules = {
        str(file.relative_to(ROOT)): Module.of(file, file.parent.relative_to(ROOT).parts)
        for place in SOURCES
        for file in (ROOT / place).rglob("*.py")
    }
    changed = changed_files(arguments.since)
    print(", ".join(sorted(changed)) or "nothing")
    near = distances(changed, modules)
    seconds = json.loads(SECONDS.read_text())
    tests = [
        path for path in near if path.startswith("tests/") and "/test_" in path and "/iceberg/" not in path
    ]
    chosen: list[str] = []
    spent = 0.0
    for path in sorted(tests, key=lambda one: (*near[one], seconds.get(one, 1.0))):
        spent += seconds.get(path, 1.0) / 2  # by two workers
        if arguments.minutes and spent > 60 * arguments.minutes and chosen:
            break
        chosen.append(path)
        if arguments.list:
            print(f"{near[path][0]:>3} {near[path][1]:>4}  {seconds.get(path, 1.0):>6} s  {path}")
    print(f"{len(chosen)} of {len(tests)} test files that the change reaches, about {spent / 60:.0f} minutes")
    print("lanes without a mark to run beside them: " + ", ".join(_lanes_beside(changed)))
    if arguments.list or not chosen:
        return 0
    return subprocess.run([*PYTEST, *chosen, *more], cwd=ROOT, check=False).returncode


def _lanes_beside(changed: set[str]) -> list[str]:
    """Return the lanes that no mark chooses and that a change calls for."""
    runs = {name: lane.before for name, lane in LANES.items() if lane.command}
    called = [
        name for name, before in runs.items() if any(part in path for part in before for path in changed)
    ]
    return called or ["none"]


if __name__ == "__main__":
    sys.exit(main())
