"""Every table of scalar types is complete, and nothing but the tables asks for a type by its name."""

import ast
from collections.abc import Collection
from pathlib import Path

import pytest

from airflow_provider_ducklake.lake.catalog.snapshot.inlined_tables import INLINED_SCALARS
from airflow_provider_ducklake.lake.format import defaults
from airflow_provider_ducklake.lake.format.types import values
from airflow_provider_ducklake.lake.format.types.ducklake_types import SCALARS, ScalarKind
from airflow_provider_ducklake.lake.spark.types.spark_types import SPARK_SCALARS
from airflow_provider_ducklake.lake.storage.arrow.scalars import ARROW_SCALARS

PACKAGE = Path(values.__file__).parents[2]
TABLES = {
    "format/types/ducklake_types.py": SCALARS,
    "storage/arrow/scalars.py": ARROW_SCALARS,
    "spark/types/spark_types.py": SPARK_SCALARS,
    "catalog/snapshot/inlined_tables.py": INLINED_SCALARS,
}
STORABLE = [name for name, row in SCALARS.items() if row.storable and row.kind is not ScalarKind.NULL]


@pytest.mark.parametrize("path", TABLES)
def test_a_table_has_exactly_the_rows_of_the_scalar_types(path):
    assert list(TABLES[path]) == list(SCALARS), f"{path}: a row is missing, or stands in another place"


def test_every_kind_has_its_texts():
    assert set(values._CODECS) == set(ScalarKind)


@pytest.mark.parametrize("name", STORABLE)
def test_what_can_be_stored_is_known_everywhere(name):
    arrow, spark = ARROW_SCALARS[name], SPARK_SCALARS[name]

    assert arrow.arrow is not None
    assert spark.carrier is not None
    if not SCALARS[name].comparable:
        return
    assert SCALARS[name].kind in defaults._READERS
    is_decoded = arrow.decoder(SCALARS[name], arrow.stored or arrow.arrow) is not None
    assert is_decoded == SCALARS[name].bounded, "its bounds are not read"


def test_the_types_that_a_row_names_exist():
    named = {word for row in SCALARS.values() for word in (*row.wider.split(), row.loses_bounds_as) if word}
    named |= {word for row in SPARK_SCALARS.values() for word in row.takes.split()}

    assert named <= set(SCALARS)


@pytest.mark.parametrize("spellings", ["sql", "aliases"])
def test_no_spelling_means_two_types(spellings):
    separator = " " if spellings == "sql" else ", "
    words = [word for row in SCALARS.values() for word in getattr(row, spellings).split(separator) if word]

    assert len(words) == len(set(words))


# --- the lint

# names of types that are words of other things too
COMMON_WORDS = {"unknown", "date", "time", "interval", "timestamp", "json", "boolean", "variant", "uuid"}
COMMON_WORDS |= {"null"}
NAMES = frozenset(SCALARS) - COMMON_WORDS
PREFIXES = {"int", "uint", "float", "time", "timestamp"}


def modules() -> list[str]:
    paths = (path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))
    return sorted(path for path in paths if path not in TABLES)


def is_scalar_literal(node: ast.AST) -> bool:
    """Whether it is ``ScalarType("…")``."""
    match node:
        case ast.Call(func=ast.Name("ScalarType"), args=[ast.Constant(str())]):
            return True
        case _:
            return False


def is_type_text(node: ast.AST) -> bool:
    """Whether it is ``str(column.type)``, ``type_.name`` or the like."""
    match node:
        case ast.Call(func=ast.Name("str"), args=[one]) | ast.Attribute(value=one, attr="name"):
            return ast.unparse(one).rpartition(".")[2] in ("type", "type_", "column_type", "catalog_type")
        case _:
            return False


def is_word(node: ast.AST | None, words: Collection[str]) -> bool:
    return isinstance(node, ast.Constant) and node.value in words


def is_compared(node: ast.AST) -> bool:
    match node:
        case ast.Compare(left=left, comparators=others):
            return is_type_text(left) or any(map(is_scalar_literal, (left, *others)))
        case ast.Call(func=ast.Attribute(attr="startswith" | "removeprefix"), args=[prefixes]):
            return any(is_word(one, PREFIXES) for one in getattr(prefixes, "elts", [prefixes]))
        case _:
            return False


def is_matched(node: ast.AST) -> bool:
    match node:
        case ast.MatchClass(cls=ast.Name("ScalarType")):
            return any(isinstance(one, ast.MatchValue) for one in ast.walk(node))
        case ast.MatchValue(value=word):
            return is_word(word, NAMES)
        case _:
            return False


def is_looked_up(node: ast.AST) -> bool:
    match node:
        case ast.Subscript(value=ast.Name(table), slice=key):
            return is_type_text(key) and not table.endswith("SCALARS")
        case ast.Call(func=ast.Attribute(attr="get"), args=[key, *_]):
            return is_type_text(key)
        case _:
            return False


def is_listed(node: ast.AST) -> bool:
    match node:
        case ast.Tuple(elts=elements) | ast.List(elts=elements) | ast.Set(elts=elements):
            return any(is_word(one, NAMES) for one in elements) or sum(map(is_scalar_literal, elements)) > 1
        case ast.Dict(keys=keys):
            return any(is_word(one, NAMES) for one in keys)
        case _:
            return False


@pytest.mark.parametrize("path", modules())
def test_only_the_tables_ask_for_a_type_by_its_name(path):
    found = [
        f"{path}:{node.lineno}: {ast.unparse(node)[:90]}"
        for node in ast.walk(ast.parse((PACKAGE / path).read_text()))
        if isinstance(node, ast.expr | ast.pattern)
        and (is_compared(node) or is_matched(node) or is_looked_up(node) or is_listed(node))
    ]

    assert not found, f"ask type.facts, or a row of {', '.join(TABLES)}: {found}"


@pytest.mark.parametrize(
    "code",
    [
        'str(column.type) == "json"',
        'type_.name in ("a", "b")',
        'type_ != ScalarType("uuid")',
        'name.startswith(("int", "uint"))',
        'TEXTS = {"varchar", "json"}',
        "_CARRIERS[str(type_)]",
        "_CARRIERS.get(type_.name)",
        'match type_:\n    case ScalarType("date" | "time"): pass',
        'match name:\n    case "timestamp_ns": pass',
    ],
)
def test_a_name_outside_the_tables_is_found(code):
    assert any(
        is_compared(node) or is_matched(node) or is_looked_up(node) or is_listed(node)
        for node in ast.walk(ast.parse(code))
    )
