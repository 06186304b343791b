"""The words that CONTRIBUTING refuses occur in no docstring, comment, message, name or page.

Its table is the list. And modules that a text names are there.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import airflow_provider_ducklake

PACKAGE = Path(airflow_provider_ducklake.__file__).parent
ROOT = PACKAGE.parent
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md"]
OF_FILES = {"tell"}  # a method of Python's files

_QUOTED = re.compile(r'```.*?```|``[^`]*``|`[^`]*`|"[^"\n]*"|“[^”]*”', re.DOTALL)
_PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")


def refused() -> list[str]:
    """Return the words and phrases in backticks of the second column of the table."""
    words = (ROOT / "CONTRIBUTING.md").read_text().split("## Words\n")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in words.splitlines() if line.startswith("| ")]
    return [word for row in rows[1:] for word in re.findall(r"`([^`]+)`", row[1])]


def pattern_of(words: list[str]) -> re.Pattern[str]:
    """Match the words, with a capital first letter too unless they have one themselves."""
    cased = (f"(?i:{re.escape(word)})" if word.islower() else re.escape(word) for word in words)
    return re.compile(rf"(?<!\w)(?:{'|'.join(cased)})\b")


def statements(node: ast.AST) -> Iterator[ast.stmt]:
    """Yield all statements of a module, and so not its expressions, which are many."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        for one in getattr(node, name, None) or ():
            yield one
            yield from statements(one)


def prose_of(module: ast.Module, text: str, phrases: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    """Yield the docstrings of a module, those of attributes too, and its comments, with their lines."""
    for one in statements(module):
        match one:
            case ast.Expr(value=ast.Constant(value=str(found))):
                yield one.lineno, '"""' + _QUOTED.sub("`", found)
    if not any("#" in line and phrases.search(line) for line in text.splitlines()):
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], _QUOTED.sub("`", token.string)


def messages_of(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the strings of a module that have several words; a docstring is one of them."""
    for one in ast.walk(module):
        match one:
            case ast.Constant(value=str(found)) if " " in found.strip():
                yield one.lineno, _QUOTED.sub("`", found)


def names_of(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the names of classes, functions, arguments and attributes that a module defines."""
    for one in statements(module):
        match one:
            case ast.FunctionDef(name=name, args=args) | ast.AsyncFunctionDef(name=name, args=args):
                yield one.lineno, name
                for argument in (*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg):
                    if argument is not None:
                        yield argument.lineno, argument.arg
            case ast.ClassDef(name=name) | ast.AnnAssign(target=ast.Name(id=name) | ast.Attribute(attr=name)):
                yield one.lineno, name
            case ast.Assign(targets=targets):
                for target in targets:
                    for node in target.elts if isinstance(target, ast.Tuple) else (target,):
                        if isinstance(node, ast.Attribute):
                            yield node.lineno, node.attr


def refused_in(name: str, words: list[str]) -> list[str]:
    """Return the words that a name has, and the phrases, whose words stand beside each other."""
    parts = f" {' '.join(part.lower() for part in _PART.findall(name))} "
    return [word for word in words if word.replace(" ", "").isalpha() and f" {word.lower()} " in parts]


def may_have(text: str, words: list[str]) -> bool:
    """Return True if a word is anywhere in a file: a cheap test before it is parsed."""
    text = text.replace("_", " ")
    lower = text.lower()
    there = [re.escape(word) for word in words if word.lower() in lower]
    return bool(there) and re.search(rf"(?<![a-zA-Z])(?i:{'|'.join(there)})(?![a-z])", text) is not None


def test_the_list_is_read():
    assert {"somebody", "Return what", '"""Whether'} <= set(refused())
    assert pattern_of(refused()).findall("Nobody knows. We return what we got.") == ["Nobody", "knows"]
    assert refused_in("_given_up", refused()) == ["given up"]
    assert refused_in("_forgiven", refused()) == []


def test_no_refused_word_is_in_the_package():
    words = refused()
    phrases = pattern_of(words)
    in_prose: dict[str, list[str]] = {}
    in_names: dict[str, list[str]] = {}

    for path in sorted(PACKAGE.rglob("*.py")):
        file, text = path.relative_to(PACKAGE).as_posix(), path.read_text()
        if not may_have(text, words):
            continue
        module = ast.parse(text)
        for line, prose in (*prose_of(module, text, phrases), *messages_of(module)):
            for word in phrases.findall(prose):
                in_prose.setdefault(file, []).append(f"{line}: {word}")
        for line, name in names_of(module):
            if name not in OF_FILES and refused_in(name, words):
                in_names.setdefault(file, []).append(f"{line}: {name}")

    assert in_prose == {}
    assert in_names == {}


def test_no_refused_word_is_in_the_docs():
    phrases = pattern_of(refused())

    found = {
        page.name: words for page in PAGES if (words := phrases.findall(_QUOTED.sub("`", page.read_text())))
    }

    assert found == {}


ROOMS = [one.name for folder in (PACKAGE, PACKAGE / "lake") for one in folder.iterdir() if one.is_dir()]
MODULE = re.compile(rf"``((?:{'|'.join(ROOMS)})[./][\w./]+?)(?:\([^`]*\))?``")
OF_OTHERS = re.compile(r"lake\.|spark\.(yarn|driver|executor|kubernetes|sql|hadoop)\.")  # of Spark, too


def is_there(name: str) -> bool:
    """Return True if a name is that of a module or folder, or of something in a module."""
    parts = name.removesuffix(".py").replace("/", ".").strip(".").split(".")
    for root in (PACKAGE, PACKAGE / "lake"):
        for count in range(len(parts), 0, -1):
            file, rest = root.joinpath(*parts[:count]).with_suffix(".py"), parts[count:]
            if not rest and (file.is_file() or file.with_suffix("").is_dir()):
                return True
            if file.is_file():
                return all(re.search(rf"\b{one}\b", file.read_text()) for one in rest)
    return False


def test_every_module_that_a_text_names_is_there():
    named = [
        (path.relative_to(PACKAGE).as_posix(), name)
        for path in sorted(PACKAGE.rglob("*.py"))
        for name in MODULE.findall(path.read_text())
        if not OF_OTHERS.match(name)
    ]

    assert len(named) > 20
    assert [one for one in named if not is_there(one[1])] == []
