"""Print the figures of the house: what eight paths visit, how the package is built.

Those of `tests/golden/house.json` may only fall: `tests/unit/test_house.py` compares them, ``--lower`` writes
the lower ones. A commit that adds a feature may raise one by hand, with the reason in its message.

A path is walked twice on a SQLite lake of its own, and counted the second time: imports and first-time tables
are not part of it. A visited file is one of the package whose code ran, a call one of its functions' frames
(comprehensions and lambdas are counted with the function that holds them). The jobs of insert, merge, delete
and update run in this process without Spark, by the tests' stand-in; ``--statements`` lists what each path
sends to the database, with its callers.
"""

import argparse
import ast
import json
import subprocess
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
GOLDEN = ROOT / "tests" / "golden" / "house.json"
HELD = ("insert", "merge", "delete", "filtered read")  # paths whose visited files are held
CALLERS = 4
SHORT = 3  # lines of a helper that may as well stand where it is called
LONG_PARAMETER_LIST = 7
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef


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

    from airflow_provider_ducklake.lake.format.snapshots import CommitInfo  # noqa: PLC0415
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


def figures() -> dict[str, float]:
    """Return the figures that are held, by their names in the golden file."""
    return {**source_figures(), **loaded_figures(), **visited_figures()}


def source_figures() -> dict[str, float]:
    """Return what the files' syntax says; files are without ``__init__.py``, their lines with them."""
    trees, kinds = modules(), _kinds()
    headers = [_header(tree) for name, tree in trees.items() if not _is_init(name)]
    tests = [file for file in (ROOT / "tests").rglob("*.py") if "next/.venv" not in file.as_posix()]
    return {
        "package: lines": kinds.total(),
        "package: files": len(headers),
        "package: functions": sum(len(_functions(tree)) for tree in trees.values()),
        "package: lines of imports": kinds["imports"],
        "package: lines of a file before its first definition": round(sum(headers) / len(headers), 1),
        f"package: helpers of at most {SHORT} lines with one caller": sum(
            _length(node) <= SHORT for tree in trees.values() for node in _with_one_caller(tree)
        ),
        "tests: lines": sum(_lines(file) for file in tests),
        "tests: files": sum(file.name != "__init__.py" for file in tests),
    }


_APPEND_AND_READ = """
import json, sys, tempfile
from pathlib import Path
import pyarrow as pa
from airflow_provider_ducklake.lake.catalog.lake import Lake

with tempfile.TemporaryDirectory() as folder:
    lake = Lake.create(f"sqlite:///{folder}/lake.sqlite", f"{folder}/files/")
    with lake.transaction() as tx:
        tx.create_table("main.t", {"id": "int64"})
    lake.append_arrow("main.t", pa.table({"id": range(100)}))
    assert lake.read_arrow("main.t").num_rows == 100
print(json.dumps([m.__file__ for n, m in sys.modules.items() if n.startswith("airflow_provider_ducklake.")]))
"""


def loaded_figures() -> dict[str, float]:
    """Return what a process loads of the package that creates a lake, appends and reads with Arrow."""
    done = subprocess.run(
        [sys.executable, "-c", _APPEND_AND_READ], cwd=ROOT, check=True, capture_output=True, text=True
    )
    files = [Path(name) for name in json.loads(done.stdout)]
    return {
        "loaded by create, append and read: files": sum(one.name != "__init__.py" for one in files),
        "loaded by create, append and read: lines": sum(map(_lines, files)),
    }


def visited_figures() -> dict[str, float]:
    """Return how many files of the package each of the held paths visits."""
    visited: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="ducklake-house-") as folder:
        paths = lake_paths(Path(folder))
        for name in HELD:
            paths[name]()
            with watched() as walk:
                paths[name]()
            visited[f"visited by {name}: files"] = len(walk.files)
    return visited


def _lines(file: Path) -> int:
    return len(file.read_text(encoding="utf-8").splitlines())


def modules() -> dict[str, ast.Module]:
    """Parse the package: module name to its syntax tree."""
    files = sorted(PACKAGE.rglob("*.py"))
    return {_module_name(file): ast.parse(file.read_text(encoding="utf-8")) for file in files}


def _module_name(file: Path) -> str:
    parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(module: str, tree: ast.Module, known: set[str]) -> set[str]:
    """Return the modules of the package that a module imports anywhere, for types too."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            inside = [*module.split("."), *["__init__"] * _is_init(module)]
            above = inside[: -node.level] if node.level else []
            source = ".".join([*above, *([node.module] if node.module else [])])
            names = [f"{source}.{alias.name}" for alias in node.names]
            found |= {name if name in known else source for name in names}
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
    edges = {name: imports_of(name, tree, known) - {name} for name, tree in trees.items()}
    lines = {_module_name(file): _lines(file) for file in PACKAGE.rglob("*.py")}
    print(f"\nmedian file: {median(lines.values()):.0f} lines")
    _print_rooms(lines)
    longest = sorted(lines, key=lambda name: -lines[name])[:5]
    print("longest files: " + ", ".join(f"{_short(name)} {lines[name]}" for name in longest))
    functions = [node for tree in trees.values() for node in _functions(tree)]
    lengths = sorted(_length(node) for node in functions)
    print(f"functions: median {median(lengths):.0f} lines, longest {lengths[-1]}")
    kinds = _kinds()
    print("lines: " + ", ".join(f"{kind} {count / kinds.total():.1%}" for kind, count in kinds.most_common()))
    once = sum(len(_with_one_caller(tree)) for tree in trees.values())
    print(f"private functions with one caller in their file: {once}")
    many = [node for node in functions if _parameters(node) > LONG_PARAMETER_LIST]
    print(f"functions of more than {LONG_PARAMETER_LIST} parameters: {len(many)}")
    importers = Counter(target for targets in edges.values() for target in targets)
    print(f"modules with one importer: {sum(count == 1 for count in importers.values())}")
    groups = circles(edges)
    print(f"circles, types included: {len(groups)}")
    for group in groups:
        print("  " + ", ".join(map(_short, group)))


def _kinds() -> Counter[str]:
    """Count the lines that are imports, docstrings, comments, blank, and code, which is the rest."""
    kinds: Counter[str] = Counter()
    for file in PACKAGE.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        of_line: dict[int, str] = {}
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import | ast.ImportFrom):
                of_line |= dict.fromkeys(range(node.lineno, (node.end_lineno or 0) + 1), "imports")
            elif isinstance(node, ast.Module | ast.ClassDef | FUNCTION) and ast.get_docstring(node):
                first = node.body[0]
                of_line |= dict.fromkeys(range(first.lineno, (first.end_lineno or 0) + 1), "docstrings")
        for number, line in enumerate(text.splitlines(), 1):
            bare = line.strip()
            other = "blank" if not bare else "comments" if bare.startswith("#") else "code"
            kinds[of_line.get(number, other)] += 1
    return kinds


def _header(tree: ast.Module) -> int:
    """Count the lines before the first statement that is no docstring, import or ``if TYPE_CHECKING``."""
    for node in tree.body:
        match node:
            case (
                ast.Import() | ast.ImportFrom() | ast.Expr(ast.Constant()) | ast.If(ast.Name("TYPE_CHECKING"))
            ):
                pass
            case ast.FunctionDef() | ast.ClassDef() if node.decorator_list:
                return node.decorator_list[0].lineno - 1
            case _:
                return node.lineno - 1
    return 0


def _functions(tree: ast.Module) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, FUNCTION)]


def _with_one_caller(tree: ast.Module) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Return the private functions of a file that it names once."""
    named = Counter(
        node.id if isinstance(node, ast.Name) else node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Name | ast.Attribute)
    )
    return [
        node
        for node in _functions(tree)
        if node.name.startswith("_") and not node.name.startswith("__") and named[node.name] == 1
    ]


def _print_rooms(lines: dict[str, int]) -> None:
    rooms: dict[str, list[int]] = defaultdict(list)
    for file in PACKAGE.rglob("*.py"):
        if file.name != "__init__.py":
            rooms[str(file.parent.relative_to(PACKAGE))].append(lines[_module_name(file)])
    for room, sizes in sorted(rooms.items(), key=lambda item: -len(item[1])):
        print(f"  {room:<22}{len(sizes):>4} files {sum(sizes):>7} lines")


def _is_init(name: str) -> bool:
    return (PACKAGE.parent / name.replace(".", "/")).is_dir()


def _short(name: str) -> str:
    return name.removeprefix(f"{PACKAGE.name}.")


def _length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    body = node.body[1:] if ast.get_docstring(node) is not None and len(node.body) > 1 else node.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    arguments: Any = node.args
    return len(arguments.posonlyargs) + len(arguments.args) + len(arguments.kwonlyargs)


def main() -> None:
    """Print all figures, or lower those of the golden file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--statements", action="store_true", help="list the statements of each path")
    parser.add_argument("--lower", action="store_true", help="write the figures that fell")
    arguments = parser.parse_args()
    held, now = json.loads(GOLDEN.read_text()), figures()
    if arguments.lower:
        lower = {name: min(value, held.get(name, value)) for name, value in now.items()}
        GOLDEN.write_text(json.dumps(lower, indent=2) + "\n")
    else:
        print_paths(with_statements=arguments.statements)
        print_source()
    print(f"\n{'held':>9}{'now':>9}")
    for name, value in now.items():
        print(f"{held.get(name, 0):>9,}{value:>9,}  {name}{'  HIGHER' * (value > held.get(name, value))}")


if __name__ == "__main__":
    main()
