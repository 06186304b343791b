"""One table of a column for each type, with values that no two readers agree on by chance."""

from collections.abc import Iterator
from typing import Literal

from tests.interop.inlined_lake import NESTED
from tests.interop.type_values import NULL_STRUCTS, TYPES

# type: values as SQL, as far as the format can keep them in files
_MORE = {
    "timetz": ("TIMETZ", ["'12:00:00+02'", "'24:00:00-15:30'", "'00:00:00+15:59:59'", "NULL"]),
    "interval": ("INTERVAL", ["'1 year 2 months 3 days 04:05:06.789'", "'0 days'", "'400 days'", "NULL"]),
    "geometry": ("GEOMETRY", ["'POINT(1 2)'", "'LINESTRING(0 0, 1 1)'", "'POLYGON EMPTY'", "NULL"]),
    "list of interval": ("INTERVAL[]", ["['1 year', NULL]", "[]", "NULL"]),
    "list of time": ("TIME[]", ["['24:00:00', NULL]", "NULL"]),
    "list of geometry": ("GEOMETRY[]", ["['POINT(1 2)', NULL]", "NULL"]),
    "struct of odd ones": (
        "STRUCT(g GEOMETRY, v INTERVAL, z TIMETZ, x BLOB)",
        [r"{'g': 'POINT(3 4)', 'v': '2 days', 'z': '01:00:00+01', 'x': '\x00a'::BLOB}", "NULL"],
    ),
    "list of maps of structs of lists": (
        "MAP(VARCHAR, STRUCT(a INTEGER[], b MAP(INTEGER, VARCHAR)))[]",
        [
            "[MAP {'k': {'a': [1, NULL], 'b': MAP {1: 'x', 2: NULL}}, 'n': NULL}, NULL, MAP {}]",
            "[MAP {'': {'a': NULL, 'b': NULL}, 'e': {'a': [], 'b': MAP {}}}]",
            "[]",
            "NULL",
        ],
    ),
    "map of lists of structs": (
        "MAP(DATE, STRUCT(a DECIMAL(20,3), t TIMESTAMPTZ)[])",
        ["MAP {DATE '1969-12-31': [{'a': -1.5, 't': '2020-01-01 00:00:00+02'}, NULL]}", "MAP {}", "NULL"],
    ),
    "map with keys of structs": (
        "MAP(STRUCT(a INTEGER), INTEGER)",
        ["MAP {{'a': 1}: 2, {'a': NULL}: NULL}", "NULL"],
    ),
    "four lists": ("INTEGER[][][][]", ["[[[[1], NULL], []], NULL]", "[[[[NULL]]]]", "NULL"]),
    "four structs": (
        "STRUCT(a STRUCT(b STRUCT(c STRUCT(d INTEGER))))",
        ["{'a': {'b': {'c': {'d': 1}}}}", "{'a': {'b': {'c': NULL}}}", "{'a': NULL}", "NULL"],
    ),
    "text of a megabyte": (
        "VARCHAR",
        ["repeat('ab', 500000)", "''", "chr(0) || 'x' || chr(0)", "'\ufeffü\u2028'"],
    ),
    "blob with zeros": ("BLOB", [r"'\x00\x00'::BLOB", r"'\x5Cx41'::BLOB", "'%''\"'::BLOB", "NULL"]),
    "doubles": ("DOUBLE", ["'nan'", "'-0.0'", "2.2250738585072014e-308", "9007199254740993"]),
    "floats": ("FLOAT", ["'nan'", "'-0.0'", "0.1", "16777217"]),
    "list of doubles": ("DOUBLE[]", ["['nan', '-0.0', 'inf', '-inf', NULL, '0.1']", "[]"]),
    "list of decimals": ("DECIMAL(38,10)[]", ["[1234567890123456789.5, NULL, -0.0000000001]", "[]"]),
    **{
        f"decimal {precision},{scale}": (
            f"DECIMAL({precision},{scale})",
            [
                f"-{'9' * (precision - scale)}.{'9' * scale}",
                f"{'1' * (precision - scale)}.{'5' * scale}",
                "0",
                "NULL",
            ],
        )
        for precision, scale in (
            (1, 0),
            (4, 1),
            (9, 9),
            (10, 2),
            (18, 0),
            (18, 18),
            (19, 4),
            (37, 2),
            (38, 0),
        )
    },
}
# ... and those that only the catalog keeps
_ONLY_INLINED = {
    "interval in parts": (
        "INTERVAL",
        [
            "'1 year -3 days 00:00:00.000001'",
            "'-25 months 1 day'",
            "'-00:00:00.5'",
            "'178956970 years 7 months'",
        ],
    ),
    "time_ns": ("TIME_NS", ["'12:34:56.123456789'", "'24:00:00'", "NULL"]),
    "list of intervals": ("INTERVAL[]", ["['-1 month', '00:00:00.5', NULL]", "[]", "NULL"]),
}


# What the reference keeps in files only, or cannot read back from the catalog.
_ONLY_IN_FILES = frozenset(
    {
        *("struct of struct", "struct of texts"),
        *("struct with names", "list of struct of texts", "map of texts", "struct of all"),
        "list of list of texts",
    }
)


def _is_inlined(name: str, type_: str) -> bool:
    return name not in _ONLY_IN_FILES and "GEOMETRY" not in type_


def type_statements(where: Literal["files", "inlined", "flushed"]) -> Iterator[str]:
    """Yield statements that make the tables `types`, row by row, and `copied`, all rows at once.

    Values are those that the reference can keep there.
    """
    chosen = {**TYPES, **NULL_STRUCTS, **NESTED, **_MORE}
    if where != "files":
        chosen = {name: one for name, one in chosen.items() if _is_inlined(name, one[0])}
    if where == "inlined":
        chosen |= _ONLY_INLINED
    columns = [f"c{number} {type_}" for number, (type_, _) in enumerate(chosen.values())]
    rows = max(len(values) for _, values in chosen.values())
    yield _braced(f"CREATE TABLE types (number INT, {', '.join(columns)})")
    for number in range(rows):
        yield _braced(f"INSERT INTO types VALUES ({number}, {_cells(chosen, number)})")
    yield "CREATE TABLE copied AS FROM types"
    yield "DELETE FROM copied WHERE number = 1"


def _cells(chosen: dict[str, tuple[str, list[str]]], number: int) -> str:
    return ", ".join(
        f"CAST({values[number] if number < len(values) else 'NULL'} AS {type_})"
        for type_, values in chosen.values()
    )


def _braced(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")
