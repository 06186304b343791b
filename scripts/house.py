"""Print the figures of the house: what eight paths visit, how the package is built. It gates nothing.

A path is walked twice on a SQLite lake of its own, and counted the second time: imports and first-time tables
are not part of it. A visited file is one of the package whose code ran, a call one of its functions' frames
(comprehensions and lambdas are counted with the function that holds them). The jobs of insert, merge, delete
and update run in this process without Spark, by the tests' stand-in; ``--statements`` lists what each path
sends to the database, with its callers.
"""

import argparse
import ast
import sys
import tempfile
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_provider_ducklake.lake.writes.verb import Verb

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "airflow_provider_ducklake"
BELOW = ("dialects", "database")  # folders whose functions send statements for others
CALLERS = 4
LONG_PARAMETER_LIST = 7


@dataclass
class Walk:
    """What ran while a path was walked."""

    files: Counter[str] = field(default_factory=Counter)
    statements: list[str] = field(default_factory=list)
    depth: int = 0
    deepest: int = 0

    def profile(self, frame: FrameType, event: str, _: object) -> None:
        """Count a frame of the package: a callback of ``sys.setprofile``."""
        name = frame.f_code.co_filename
        if not name.startswith(str(PACKAGE)) or frame.f_code.co_name.startswith("<"):
            return
        if event == "return":
            self.depth -= 1
        if event != "call":
            return
        self.files[name] += 1
        self.depth += 1
        self.deepest = max(self.deepest, self.depth)

    def note_statement(self, _connection: object, _cursor: object, statement: str, *_: object) -> None:
        """Note a statement with its callers: a listener of SQLAlchemy's."""
        if statement == "PRAGMA schema_version":  # SQLite has read it with the file's header
            return
        frames = [one for one in traceback.extract_stack() if one.filename.startswith(str(PACKAGE))]
        callers = [
            f"{Path(one.filename).stem}.{one.name}"
            for one in reversed(frames)
            if Path(one.filename).parent.name not in BELOW
        ]
        self.statements.append(f"{' '.join(statement.split()):<100.100}  {' < '.join(callers[:CALLERS])}")


@contextmanager
def watched() -> Iterator[Walk]:
    """Count what runs within the block."""
    from sqlalchemy import event  # noqa: PLC0415 - not needed by the figures of the source
    from sqlalchemy.engine import Engine  # noqa: PLC0415

    walk = Walk()
    event.listen(Engine, "before_cursor_execute", walk.note_statement)
    sys.setprofile(walk.profile)
    try:
        yield walk
    finally:
        sys.setprofile(None)
        event.remove(Engine, "before_cursor_execute", walk.note_statement)


def lake_paths(folder: Path) -> dict[str, Callable[[], object]]:
    """Return the paths through the library, each on a table that is ready for it."""
    import pyarrow as pa

    from airflow_provider_ducklake.lake.catalog.lake import Lake  # noqa: PLC0415

    lake = Lake.create(f"sqlite:///{folder}/lake.sqlite", f"{folder}/files/")
    with lake.transaction() as tx:
        for name in ("main.small", "main.large", "main.filtered"):
            tx.create_table(name, {"id": "int64", "price": "decimal(18,2)", "day": "date", "note": "varchar"})
    rows = pa.table(
        {"id": [1, 2], "price": ["1.50", "2.50"], "day": ["2026-01-01", "2026-01-02"], "note": ["a", "b"]}
    )
    rows = rows.set_column(1, "price", rows["price"].cast(pa.decimal128(18, 2)))
    rows = rows.set_column(2, "day", rows["day"].cast(pa.date32()))
    many = pa.concat_tables([rows] * 100)
    lake.append_arrow("main.filtered", many)
    return {
        **_verb_paths(lake, folder),
        "inlined append": lambda: lake.append_arrow("main.small", rows),
        "file append": lambda: lake.append_arrow("main.large", many),
        "filtered read": lambda: lake.read_arrow("main.filtered", filter="day = '2026-01-01' AND id > 0"),
        "sensor's look": lambda: lake.table_changes("main.filtered", 0, ("insert",)),
    }


def _verb_paths(lake: Any, folder: Path) -> dict[str, Callable[[], object]]:  # noqa: ANN401 - a Lake
    """Return what changes one row of tables of one file, the second time of a file with deletes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from airflow_provider_ducklake.lake.spec.snapshots import CommitInfo  # noqa: PLC0415
    from airflow_provider_ducklake.lake.writes.arguments import GivenRows  # noqa: PLC0415
    from airflow_provider_ducklake.lake.writes.insert import Insert  # noqa: PLC0415
    from airflow_provider_ducklake.lake.writes.row_changes import Delete, Merge, Update  # noqa: PLC0415
    from airflow_provider_ducklake.lake.writes.run import run  # noqa: PLC0415
    from airflow_provider_ducklake.lake.writes.verb import Commit  # noqa: PLC0415

    sys.path.insert(0, str(ROOT))
    from tests.concurrency.arrow_jobs import ArrowSubmitter  # noqa: PLC0415

    columns = {"id": "int64", "note": "varchar"}
    with lake.transaction() as tx:
        for name in ("inserted", "merged", "deleted", "updated"):
            tx.create_table(name, columns)
            tx.set_option(name, "data_inlining_row_limit", 0)
            tx.append_arrow(name, pa.table({"id": range(100), "note": ["a"] * 100}))
    for number in range(2):
        pq.write_table(pa.table({"id": [number], "note": ["b"]}), folder / f"{number}.parquet")
    sources = iter([GivenRows(source=str(folder / f"{number}.parquet")) for number in (0, 1, 0, 1)])
    ids = iter(range(100))
    merged = [{"update": "*"}]
    verbs: dict[str, Callable[[], Verb]] = {
        "insert": lambda: Insert("inserted", next(sources)),
        "merge": lambda: Merge("merged", ["id"], next(sources), when_matched=merged),
        "delete": lambda: Delete("deleted", f"id = {next(ids)}"),
        "update": lambda: Update("updated", {"note": "'b'"}, f"id = {next(ids)}"),
    }

    def walk(name: str) -> None:
        run(verbs[name](), lake, ArrowSubmitter(), Commit(CommitInfo()))

    return {name: partial(walk, name) for name in verbs}


def print_paths(*, with_statements: bool) -> None:
    """Print files, calls, statements and depth of each path."""
    print(f"{'path':<18}{'files':>7}{'calls':>7}{'statements':>12}{'depth':>7}  files of each room")
    with tempfile.TemporaryDirectory(prefix="ducklake-house-") as folder:
        for name, walk_it in lake_paths(Path(folder)).items():
            walk_it()
            with watched() as walk:
                walk_it()
            rooms = Counter(_room(Path(file)) for file in walk.files)
            shown = ", ".join(f"{room} {count}" for room, count in rooms.most_common())
            numbers = (len(walk.files), walk.files.total(), len(walk.statements), walk.deepest)
            print("{:<18}{:>7}{:>7}{:>12}{:>7}  {}".format(name, *numbers, shown))
            for statement in walk.statements if with_statements else ():
                print(f"    {statement}")


def _room(file: Path) -> str:
    """Return the folder of the provider, or of the library, that a file is in."""
    parts = file.relative_to(PACKAGE).parts
    return parts[parts[0] == "lake"]


def modules() -> dict[str, ast.Module]:
    """Parse the package: module name to its syntax tree."""
    files = sorted(PACKAGE.rglob("*.py"))
    return {_module_name(file): ast.parse(file.read_text(encoding="utf-8")) for file in files}


def _module_name(file: Path) -> str:
    parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(tree: ast.Module, known: set[str]) -> set[str]:
    """Return the modules of the package that a module imports anywhere, for types too."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {name if name in known else node.module for name in names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & known


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that import each other: Tarjan's strongly connected components."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        order[name] = low[name] = len(order)
        stack.append(name)
        for other in edges[name]:
            if other not in order:
                visit(other)
            if other in stack:
                low[name] = min(low[name], low[other])
        if low[name] == order[name]:
            place = stack.index(name)
            if len(stack) - place > 1:
                found.append(sorted(stack[place:]))
            del stack[place:]

    for name in edges:
        if name not in order:
            visit(name)
    return found


def print_source() -> None:
    """Print rooms, sizes, parameter lists, importers and circles."""
    trees = modules()
    known = set(trees)
    edges = {name: imports_of(tree, known) - {name} for name, tree in trees.items()}
    lines = {
        _module_name(file): len(file.read_text(encoding="utf-8").splitlines())
        for file in PACKAGE.rglob("*.py")
    }
    print(f"\npackage: {len(lines)} files, {sum(lines.values())} lines")
    print(f"median file: {median(lines.values()):.0f} lines")
    _print_rooms(lines)
    longest = sorted(lines, key=lambda name: -lines[name])[:5]
    print("longest files: " + ", ".join(f"{_short(name)} {lines[name]}" for name in longest))
    functions = [
        node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)
    ]
    lengths = sorted(_length(node) for node in functions)
    print(f"functions: {len(functions)}, median {median(lengths):.0f} lines, longest {lengths[-1]}")
    _print_kinds(trees)
    once = sum(_helpers_with_one_caller(tree) for tree in trees.values())
    print(f"private functions with one caller in their file: {once}")
    many = [node for node in functions if _parameters(node) > LONG_PARAMETER_LIST]
    print(f"functions of more than {LONG_PARAMETER_LIST} parameters: {len(many)}")
    importers = Counter(target for targets in edges.values() for target in targets)
    print(f"modules with one importer: {sum(count == 1 for count in importers.values())}")
    groups = circles(edges)
    print(f"circles, types included: {len(groups)}")
    for group in groups:
        print("  " + ", ".join(map(_short, group)))


def _print_kinds(trees: dict[str, ast.Module]) -> None:
    """Print how many lines are imports, docstrings, comments, blank, and code, which is the rest."""
    kinds: Counter[str] = Counter()
    for file in PACKAGE.rglob("*.py"):
        of_line: dict[int, str] = {}
        for node in ast.walk(trees[_module_name(file)]):
            if isinstance(node, ast.Import | ast.ImportFrom):
                of_line |= dict.fromkeys(range(node.lineno, (node.end_lineno or 0) + 1), "imports")
            elif isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node):
                text = node.body[0]
                of_line |= dict.fromkeys(range(text.lineno, (text.end_lineno or 0) + 1), "docstrings")
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            bare = line.strip()
            other = "blank" if not bare else "comments" if bare.startswith("#") else "code"
            kinds[of_line.get(number, other)] += 1
    print("lines: " + ", ".join(f"{kind} {count / kinds.total():.1%}" for kind, count in kinds.most_common()))


def _helpers_with_one_caller(tree: ast.Module) -> int:
    said = Counter(
        node.id if isinstance(node, ast.Name) else node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Name | ast.Attribute)
    )
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    return sum(
        one.name.startswith("_") and not one.name.startswith("__") and said[one.name] == 1
        for one in functions
    )


def _print_rooms(lines: dict[str, int]) -> None:
    rooms: dict[str, list[int]] = defaultdict(list)
    for file in PACKAGE.rglob("*.py"):
        if file.name != "__init__.py":
            rooms[str(file.parent.relative_to(PACKAGE))].append(lines[_module_name(file)])
    for room, sizes in sorted(rooms.items(), key=lambda item: -len(item[1])):
        print(f"  {room:<22}{len(sizes):>4} files {sum(sizes):>7} lines")


def _short(name: str) -> str:
    return name.removeprefix(f"{PACKAGE.name}.")


def _length(node: ast.FunctionDef) -> int:
    body = node.body[1:] if ast.get_docstring(node) is not None and len(node.body) > 1 else node.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1


def _parameters(node: ast.FunctionDef) -> int:
    arguments: Any = node.args
    return len(arguments.posonlyargs) + len(arguments.args) + len(arguments.kwonlyargs)


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--statements", action="store_true", help="list the statements of each path")
    print_paths(with_statements=parser.parse_args().statements)
    print_source()


if __name__ == "__main__":
    main()
