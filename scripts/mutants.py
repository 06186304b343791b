"""Plant drawn mutants into a clone, find the tests that reach them, and see which tests notice.

All mutants lie in one tree, each off until the environment variable MUTANT names it, so one run of the tests
records which of them reach which mutant, in whatever process:

    git clone . ../mutants && python scripts/mutants.py plant ../mutants --seed 1 --count 60
    cd ../mutants && MUTANT_RECORD=$PWD/reached.txt make test ARGS=--junitxml=run.xml
    python scripts/mutants.py judge ../mutants       # a mutant's tests, the quick ones first, until one fails

A mutant is a rule deleted, a comparison turned, or two values swapped, as many of each in each room.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = "airflow_provider_ducklake"
ROOMS = ("lake/transaction", "lake/planning", "lake/catalog", "lake/spark", "lake/writes", "hooks")
KINDS = ("rule deleted", "comparison turned", "swapped")
TURNED: dict[type[ast.cmpop], str] = {
    ast.Lt: ">=", ast.GtE: "<", ast.Gt: "<=", ast.LtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is",
}  # fmt: skip
# In a module that everything may import, the job's zip has it too.
SWITCH = """
import os as _os
_on, _record, _seen = _os.environ.get("MUTANT"), _os.environ.get("MUTANT_RECORD"), set()
def mutant(number):
    line = f"{number} {_os.environ.get('PYTEST_CURRENT_TEST', '?')}\\n"
    if _record and line not in _seen:
        _seen.add(line)
        file = _os.open(_record, _os.O_WRONLY | _os.O_CREAT | _os.O_APPEND, 0o666)
        _os.write(file, line.encode())
        _os.close(file)
    return _on == str(number)
"""
OF_PYTHON = ("cast", "getattr", "hasattr", "isinstance", "issubclass", "zip")  # swapped, they just break
PARTS = (60, 250, 800)  # tests of a process: many mutants die early


@dataclass(frozen=True)
class Mutant:
    """An expression of one line: where it is, and what stands there instead; ``#`` is its number."""

    kind: str
    file: str
    line: int
    columns: tuple[int, int]  # in bytes
    old: str
    new: str


def mutants_of(root: Path, file: Path) -> Iterator[Mutant]:
    """Yield each mutant that a file may have."""
    source = file.read_text(encoding="utf-8")
    tree = ast.parse(source)
    for node in _within_functions(tree):
        changed = _changed(source, node)
        if changed is not None:
            kind, expression, new = changed
            place = (expression.col_offset, expression.end_col_offset or 0)
            old = ast.get_source_segment(source, expression) or ""
            if expression.lineno == expression.end_lineno:
                yield Mutant(kind, str(file.relative_to(root)), expression.lineno, place, old, new)


def _within_functions(tree: ast.Module) -> Iterator[ast.AST]:
    left_out: set[int] = set()
    for node in ast.walk(tree):
        parts = [
            getattr(node, "annotation", None),
            getattr(node, "returns", None),
            getattr(node, "pattern", None),
        ]
        parts += [node] if isinstance(node, ast.JoinedStr) else []
        left_out |= {id(one) for part in parts if isinstance(part, ast.AST) for one in ast.walk(part)}
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in function.body:
                for node in ast.walk(statement):
                    if id(node) not in left_out:
                        left_out.add(id(node))
                        yield node


def _changed(source: str, node: ast.AST) -> tuple[str, ast.expr, str] | None:
    """Return a kind of mutant, the expression that it replaces, and by what."""

    def text(part: ast.AST) -> str:
        return ast.get_source_segment(source, part) or ""

    match node:
        case ast.If(test=test, body=[ast.Raise() | ast.Return() | ast.Continue()], orelse=[]):
            return KINDS[0], test, f"(False if _mutant(#) else ({text(test)}))"
        case ast.Expr(value=ast.Call() as call) if "log" not in text(call):
            return KINDS[0], call, f"_mutant(#) or {text(call)}"
        case ast.Compare(left=left, ops=[operator], comparators=[right]) if type(operator) in TURNED:
            turned = f"{text(left)} {TURNED[type(operator)]} {text(right)}"
            return KINDS[1], node, f"(({turned}) if _mutant(#) else ({text(node)}))"
        case ast.Call(func=func, args=[*given], keywords=named) if text(func) not in OF_PYTHON:
            pairs = (
                [one for one in given[:2] if _is_name(one)],
                [one.value for one in named if _is_name(one.value)],
            )
            pair = next((pair[:2] for pair in pairs if len(pair) > 1), None)
            if pair and text(pair[0]) != text(pair[1]) and node.lineno == node.end_lineno:
                return KINDS[2], node, f"({_swapped(text(node), node, pair)} if _mutant(#) else {text(node)})"
        case _:
            pass
    return None


def _is_name(node: ast.AST) -> bool:
    return isinstance(node, ast.Name | ast.Attribute)


def _swapped(text: str, call: ast.expr, pair: list[ast.expr]) -> str:
    (a, b), (c, d) = (
        (one.col_offset - call.col_offset, (one.end_col_offset or 0) - call.col_offset) for one in pair
    )
    code = text.encode()
    return (code[:a] + code[c:d] + code[b:c] + code[a:b] + code[d:]).decode()


def plant(tree: Path, seed: str, count: int) -> None:
    """Draw mutants, and put them into a clone: ``mutants.json`` there names them."""
    draw = random.Random(seed)
    chosen: list[Mutant] = []
    for room in ROOMS:
        found: dict[str, list[Mutant]] = defaultdict(list)
        for file in sorted((tree / PACKAGE / room).rglob("*.py")):
            if "launcher" not in file.parts:  # it imports nothing of the package
                for one in mutants_of(tree, file):
                    found[one.kind].append(one)
        for number in range(count // len(ROOMS)):
            lines = {(one.file, one.line) for one in chosen}
            free = [one for one in found[KINDS[number % len(KINDS)]] if (one.file, one.line) not in lines]
            chosen.append(draw.choice(free))
    (tree / PACKAGE / "lake" / "format" / "__init__.py").write_text(SWITCH)
    numbered = sorted(enumerate(chosen), key=lambda one: (one[1].file, -one[1].line))
    for name in {one.file for one in chosen}:
        lines_of_file = (tree / name).read_text(encoding="utf-8").split("\n")
        for number, one in numbered:
            if one.file == name:
                code = lines_of_file[one.line - 1].encode()
                begin, end = one.columns
                new = one.new.replace("#", str(number)).encode()
                lines_of_file[one.line - 1] = (code[:begin] + new + code[end:]).decode()
        first = next(place for place, line in enumerate(lines_of_file) if line.startswith("from __future__"))
        lines_of_file.insert(first + 1, f"from {PACKAGE}.lake.format import mutant as _mutant")
        (tree / name).write_text("\n".join(lines_of_file), encoding="utf-8")
    (tree / "mutants.json").write_text(json.dumps([asdict(one) for one in chosen], indent=1))


def judge(tree: Path) -> int:
    """Print of each mutant which test notices it, or that none does; return how many are unnoticed."""
    mutants = json.loads((tree / "mutants.json").read_text())
    reached = reached_by(tree / "reached.txt", tree / "run.xml")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        noticed = list(
            pool.map(lambda number: first_to_notice(tree, number, reached[number]), range(len(mutants)))
        )
    for number, (mutant, test) in enumerate(zip(mutants, noticed, strict=True)):
        says = test or f"NOBODY of {len(reached[number])}"
        print(
            f"{number:>3} {mutant['file']}:{mutant['line']} {mutant['kind']}: {mutant['old'][:60]} -- {says}"
        )
    print(f"{len(mutants) - noticed.count(None)} of {len(mutants)} noticed")
    return noticed.count(None)


def reached_by(record: Path, report: Path) -> dict[int, list[str]]:
    """Return the tests that reach each mutant and pass without it, the quick ones first.

    What a fixture reaches counts for all tests of the file, as it may be the fixture of the file.
    """
    seconds: dict[str, float] = {}
    for case in ET.parse(report).iter("testcase"):  # noqa: S314 - pytest's own
        name = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
        if case.find("failure") is None and case.find("error") is None:
            seconds[name] = float(case.get("time", 0))
    found: dict[int, set[str]] = defaultdict(set)
    for line in record.read_text().splitlines():
        if match := re.fullmatch(r"(\d+) (.*) \((\w+)\)", line):
            file = match[2].partition("::")[0]
            found[int(match[1])] |= (
                {one for one in seconds if one.startswith(f"{file}::")} if match[3] == "setup" else {match[2]}
            )
    return {
        number: sorted(tests & seconds.keys(), key=seconds.__getitem__) for number, tests in found.items()
    }


def first_to_notice(tree: Path, number: int, tests: list[str]) -> str | None:
    """Run tests with a mutant until one fails, and return its name."""
    arguments, begin = tree / f"arguments-{number}", 0
    for count in (*PARTS, *[PARTS[-1]] * len(tests)):
        if begin >= len(tests):
            return None
        arguments.write_text("\n".join(tests[begin : begin + count]))
        begin += count
        command = [
            str(tree / "scripts" / "run"),
            "pytest",
            "-x",
            "-q",
            "-p",
            "no:cacheprovider",
            f"@{arguments}",
        ]
        environment = {**os.environ, "MUTANT": str(number)}
        done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            named = re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
            return str(named[0]) if named else done.stdout[-200:]
    return None


def main() -> int:
    """Do what the arguments say."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["plant", "judge"])
    parser.add_argument("tree", type=Path)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--count", type=int, default=60)
    arguments = parser.parse_args()
    if arguments.what == "judge":
        return int(judge(arguments.tree.resolve()) > 0)
    plant(arguments.tree.resolve(), arguments.seed, arguments.count)
    return 0


if __name__ == "__main__":
    sys.exit(main())
