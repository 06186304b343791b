"""CSV and JSON files of many kinds, drawn with the rows that they hold; bad ones hold none.

A kind is a function of a random generator. Rows are texts for CSV where no table gives the types. What writes
the files is Python's own ``csv`` and ``json``, but for the damage of bad kinds.
"""

import csv
import gzip
import io
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

COLUMNS = {
    "id": "int64",
    "price": "decimal(9,2)",
    "day": "date",
    "at": "timestamp",
    "note": "varchar",
    "ratio": "float64",
    "ok": "boolean",
}
NESTED = {"id": "int64", "who": "struct(name varchar, age int32)", "tags": "struct(k varchar)[]"}
Row = tuple[Any, ...]
_TEXTS = ("a", "ann, bob", 'say "x"', "é ü 😀", " spaces ", "'single'", "a;b|c\td", "NULL", "NA", "-", "7")


@dataclass(frozen=True)
class Drawn:
    """Files of a kind: what they hold in the types of ``columns``, or None where they are to be refused.

    ``as_texts``: rows that a table without types holds; None: those of the types.
    """

    format: str
    files: dict[str, bytes]
    rows: list[Row] | None
    options: dict[str, Any] = field(default_factory=dict)
    columns: dict[str, str] = field(default_factory=lambda: COLUMNS)
    only_typed: bool = False  # bad only by the types of the table
    only_filled: bool = False  # bad only where its rows go into the table

    def write(self, folder: Path) -> str:
        """Write the files into a folder of their own."""
        folder.mkdir(parents=True)
        for name, content in self.files.items():
            (folder / name).write_bytes(content)
        return f"{folder}/"


def _row(draw: Random, texts: tuple[str, ...] = _TEXTS) -> Row:
    row = (
        draw.randrange(-(2**63), 2**63),
        Decimal(draw.randrange(-(10**9) + 1, 10**9)) / 100,
        date(draw.randrange(1, 9999), draw.randrange(1, 13), draw.randrange(1, 29)),
        datetime(2024, 1, 2, draw.randrange(24), 4, 5, draw.choice([0, 120_000, 123_456])),  # noqa: DTZ001
        draw.choice(texts),
        draw.choice([0.5, -1e300, 3.25, 1e-7]),
        draw.choice([True, False]),
    )
    return tuple(None if place and draw.random() < 0.15 else value for place, value in enumerate(row))


def _rows(draw: Random, texts: tuple[str, ...] = _TEXTS) -> list[Row]:
    return [_row(draw, texts) for _ in range(draw.randint(1, 6))]


def _text(value: Any) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    return None if value is None else str(value)


def _csv(rows: list[Row], names: list[str], *, ends: str = "\n", sep: str = ",", header: bool = True) -> str:
    """Write rows as RFC 4180 has them; a text is quoted, so that the empty one is none of NULL."""
    made = io.StringIO()
    if header:
        csv.writer(made, lineterminator=ends, delimiter=sep).writerow(names)
    for row in rows:
        fields = [
            '"' + one.replace('"', '""') + '"' if isinstance(one, str) else _text(one) or "" for one in row
        ]
        made.write(sep.join(fields) + ends)
    return made.getvalue()


def _good(draw: Random, *, texts: tuple[str, ...] = _TEXTS, ends: str = "\n") -> Drawn:
    rows = _rows(draw, texts)
    return Drawn("csv", {"a.csv": _csv(rows, list(COLUMNS), ends=ends).encode()}, rows)


def _line_ends(draw: Random) -> Drawn:
    return _good(draw, texts=("first\nsecond", "a\r\nb", "a\n2,b", "\n", 'x"\n"y', "a\rb"))


def _crlf(draw: Random) -> Drawn:
    return _good(draw, texts=("a\r\nb", "a", "a\n", '"'), ends="\r\n")


def _empty_and_null(draw: Random) -> Drawn:
    return _good(draw, texts=("", "a"))


def _bom(draw: Random) -> Drawn:
    drawn = _good(draw)
    return Drawn("csv", {"a.csv": b"\xef\xbb\xbf" + drawn.files["a.csv"]}, drawn.rows)


def _compressed(draw: Random) -> Drawn:
    drawn = _good(draw)
    return Drawn("csv", {"a.csv.gz": gzip.compress(drawn.files["a.csv"])}, drawn.rows)


def _several(draw: Random) -> Drawn:
    """Return files whose columns have other orders, and names in other letter cases."""
    files, rows = {}, []
    for number in range(draw.randint(2, 4)):
        own = _rows(draw)
        order = draw.sample(range(len(COLUMNS)), len(COLUMNS))
        names = [draw.choice([str.upper, str.lower, str.title])(list(COLUMNS)[place]) for place in order]
        files[f"{number}.csv"] = _csv([tuple(row[place] for place in order) for row in own], names).encode()
        rows += own
    return Drawn("csv", files, rows)


def _dialect(draw: Random) -> Drawn:
    rows, sep = _rows(draw), draw.choice(";|\t")
    return Drawn("csv", {"a.csv": _csv(rows, list(COLUMNS), sep=sep).encode()}, rows, {"sep": sep})


def _no_header(draw: Random) -> Drawn:
    rows = _rows(draw)
    content = _csv(rows, [], header=False).encode()
    return Drawn("csv", {"a.csv": content}, rows, {"header": False, "schema": _ddl()}, only_typed=True)


def _ddl() -> str:
    return "id BIGINT, price DECIMAL(9,2), day DATE, at TIMESTAMP_NTZ, note STRING, ratio DOUBLE, ok BOOLEAN"


def _schema(draw: Random) -> Drawn:
    drawn = _good(draw)
    return Drawn("csv", drawn.files, drawn.rows, {"schema": _ddl()})


def _encoded(draw: Random) -> Drawn:
    encoding = draw.choice(["ISO-8859-1", "UTF-16", "windows-1252"])
    rows = _rows(draw, ("é ü", "a", 'x"y\nz'))
    content = _csv(rows, list(COLUMNS)).encode(encoding)
    return Drawn("csv", {"a.csv": content}, rows, {"encoding": encoding})


def _backslash(draw: Random) -> Drawn:
    rows = _rows(draw, ('a\\b"c', "\\", '"', "a\nb"))
    lines = [",".join(COLUMNS)]
    for row in rows:
        fields = [
            '"' + one.replace("\\", "\\\\").replace('"', '\\"') + '"'
            if isinstance(one, str)
            else _text(one) or ""
            for one in row
        ]
        lines.append(",".join(fields))
    return Drawn("csv", {"a.csv": "\n".join(lines).encode()}, rows, {"escape": "\\"})


def _inches(draw: Random) -> Drawn:
    """Return quotes within fields that are not quoted."""
    rows = [(draw.randrange(9), draw.choice(['5" pipe', 'a"b"c', 'x"'])) for _ in range(3)]
    lines = ["id,note", *(f"{number},{text}" for number, text in rows)]
    return Drawn(
        "csv", {"a.csv": "\n".join(lines).encode()}, rows, columns={"id": "int64", "note": "varchar"}
    )


def _formats(draw: Random) -> Drawn:
    rows = [(day, datetime(2024, draw.randrange(1, 13), 3, 4, 5)) for _, _, day, *_ in _rows(draw) if day]  # noqa: DTZ001
    lines = ["day,at", *(f"{day:%d.%m.}{day.year:04},{at:%d/%m/%Y %H:%M}" for day, at in rows)]
    options = {"dateFormat": "dd.MM.yyyy", "timestampFormat": "dd/MM/yyyy HH:mm"}
    columns = {"day": "date", "at": "timestamp"}
    return Drawn("csv", {"a.csv": "\n".join(lines).encode()}, rows, options, columns, only_typed=True)


def _bad_field(draw: Random) -> Drawn:
    """Return a field that is no value of its column, though Spark has one for it."""
    name, text = draw.choice(
        [
            ("price", '"1,5"'),
            ("price", '"1.234,50"'),
            ("price", '"1,234.50"'),
            ("price", "1.005"),
            ("price", "12345678.00"),
            ("ratio", "1d"),
            ("ratio", "1f"),
            ("ratio", "0x1p3"),
            ("id", "1.5"),
            ("id", "9223372036854775808"),
            ("id", "x"),
            ("day", "2024-02-30"),
            ("day", "2024-01-02 03:04:05+02:00"),
            ("at", "2024-01-02 03:04:05+02:00"),
            ("at", "2024-01-02 25:00:00"),
            ("ok", "maybe"),
        ]
    )
    row = [_text(one) or "" for one in _row(draw, ("a",))]
    row[list(COLUMNS).index(name)] = text
    good = _csv(_rows(draw, ("a",)), list(COLUMNS))
    return Drawn("csv", {"a.csv": f"{good}{','.join(row)}\n".encode()}, None, only_typed=True)


def _ragged(draw: Random) -> Drawn:
    good = _csv(_rows(draw), list(COLUMNS))
    row = ["1"] * draw.choice([1, 3, 6, 8])
    return Drawn("csv", {"a.csv": f"{good}{','.join(row)}\n{good.split(chr(10), 1)[1]}".encode()}, None)


def _bad_quotes(draw: Random) -> Drawn:
    good = _csv(_rows(draw, ("a",)), list(COLUMNS))
    field = draw.choice(['"a', '"a"b', '"a" '])
    row = f"1,1.00,2024-01-02,2024-01-02 03:04:05,{field},0.5,true\n"
    return Drawn("csv", {"a.csv": f"{good}{row}".encode()}, None)


def _bad_headers(draw: Random) -> Drawn:
    good = _csv(_rows(draw), list(COLUMNS))
    other = draw.choice(["id,price\n1,1.00\n", "id,id\n1,2\n", "id,,note\n1,2,x\n", "id,other\n1,2\n"])
    files = {"a.csv": good.encode(), "b.csv": other.encode()}
    return Drawn("csv", files, None)


def _bad_bytes(draw: Random) -> Drawn:
    good = _csv(_rows(draw, ("a",)), list(COLUMNS)).encode()
    bad = draw.choice([b'1,1.00,,,"\xff",,\n', b'1,1.00,,,"\xe9t\xe9",,\n', b"1,1.00,,,a\rb,,\n"])
    return Drawn("csv", {"a.csv": good + bad}, None)


# --- JSON


def _json_value(value: Any) -> Any:
    return float(value) if isinstance(value, Decimal) else _text(value) if isinstance(value, date) else value


def _objects(draw: Random, rows: list[Row]) -> list[dict[str, Any]]:
    """Return records whose keys are in any order and letter case; absent is NULL."""
    objects = []
    for row in rows:
        members = list(zip(COLUMNS, map(_json_value, row), strict=True))
        draw.shuffle(members)
        kept = [(name, value) for name, value in members if value is not None or draw.random() < 0.5]
        objects.append(dict(kept))
    return objects


def _json_rows(draw: Random) -> list[Row]:
    return [
        (one[0], one[1] and Decimal(draw.randrange(-(10**6), 10**6)) / 100, *one[2:]) for one in _rows(draw)
    ]


def _laid_out(draw: Random) -> Drawn:
    """Return records in each layout: lines, several in a line, over lines, an array."""
    rows = _json_rows(draw)
    objects = _objects(draw, rows)
    text = draw.choice(
        [
            lambda: "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in objects),
            lambda: "".join(
                json.dumps(one) + draw.choice(["", " ", "\n", "\r\n", "\n\n"]) for one in objects
            ),
            lambda: "\n".join(json.dumps(one, indent=2) for one in objects),
            lambda: json.dumps(objects),
            lambda: json.dumps(objects, indent=1),
        ]
    )()
    name, content = draw.choice(
        [
            ("a.json", text.encode()),
            ("a.json.gz", gzip.compress(text.encode())),
            ("a.json", b"\xef\xbb\xbf" + text.encode()),
        ]
    )
    return Drawn("json", {name: content}, rows, {"multiLine": True} if draw.random() < 0.3 else {})


def _key_cases(draw: Random) -> Drawn:
    rows = [(number, draw.choice(["a", "é\n", None])) for number in range(draw.randint(2, 5))]
    spelled = [
        json.dumps({draw.choice(["id", "ID", "Id"]): number, draw.choice(["note", "Note"]): text})
        for number, text in rows
    ]
    return Drawn(
        "json", {"a.json": "\n".join(spelled).encode()}, rows, columns={"id": "int64", "note": "varchar"}
    )


def _nested(draw: Random) -> Drawn:
    rows, lines = [], []
    for number in range(draw.randint(1, 4)):
        who = draw.choice([{"name": "ann", "age": 3}, {"age": 4}, {"Name": "bob", "AGE": 5}, None])
        tags = draw.choice([[{"k": "x"}], [{"k": "x"}, {"K": "y"}], [], None])
        lines.append(json.dumps({"id": number, "who": who, "tags": tags}))
        folded = who and {key.lower(): value for key, value in who.items()}
        rows.append(
            (
                number,
                folded and {"name": folded.get("name"), "age": folded.get("age")},
                None if tags is None else [{"k": next(iter(tag.values()))} for tag in tags],
            )
        )
    return Drawn("json", {"a.json": "\n".join(lines).encode()}, rows, columns=NESTED, only_typed=True)


def _numbers_as_texts(draw: Random) -> Drawn:
    rows, lines = [], []
    for number in range(3):
        text = draw.choice(["1.50", "true", "x"])
        rows.append((number, Decimal("1.50"), text))
        note = json.dumps(text) if text == "x" else text
        lines.append(
            f'{{"id":{draw.choice([number, json.dumps(str(number))])},'
            f'"price":{draw.choice(["1.50", json.dumps("1.5")])},"note":{note}}}'
        )
    columns = {"id": "int64", "price": "decimal(9,2)", "note": "varchar"}
    return Drawn("json", {"a.json": "\n".join(lines).encode()}, rows, columns=columns, only_typed=True)


def _bad_json(draw: Random) -> Drawn:
    good = '{"id":1,"price":1.50,"note":"a"}\n'
    bad = draw.choice(
        [
            '{"id":1} garbage\n',
            '{"id":1},{"id":2}\n',
            '{"id":1,"id":2}\n',
            '{"id":1,"ID":2}\n',
            '{"id":1,"note":{"a":1,"a":2}}\n',
            '{"id":1,}\n',
            "{'id':1}\n",
            '{"id":01}\n',
            '{"id":1',
            "1\n",
            '"text"\n',
            '{"note":"a\tb"}\n',
            '{"note":"\\ud83d"}\n',
            '{"id":1} // comment\n',
            "[1, 2]\n",
        ]
    )
    lines = [good] * draw.randint(0, 3) + [bad]
    draw.shuffle(lines[:-1])
    columns = {"id": "int64", "price": "decimal(9,2)", "note": "varchar"}
    return Drawn("json", {"a.json": "".join(lines).encode()}, None, columns=columns)


def _bad_json_value(draw: Random) -> Drawn:
    bad = draw.choice(
        [
            '{"id":1.5}',
            '{"id":"x"}',
            '{"id":9223372036854775808}',
            '{"price":"1,5"}',
            '{"price":1.005}',
            '{"price":{"a":1}}',
            '{"id":[1]}',
            '{"id":true}',
        ]
    )
    good = '{"id":1,"price":1.50,"note":"a"}\n'
    columns = {"id": "int64", "price": "decimal(9,2)", "note": "varchar"}
    return Drawn("json", {"a.json": (good * 2 + bad).encode()}, None, columns=columns, only_typed=True)


def _bad_nested(draw: Random) -> Drawn:
    bad = draw.choice(
        [
            '{"id":1,"who":{"name":"ann","age":3,"city":"Bern"}}',
            '{"id":1,"tags":[{"k":"x","v":"y"}]}',
            '{"id":1,"who":"ann"}',
            '{"id":1,"who":[{"name":"ann"}]}',
            '{"id":1,"who":{"age":"x"}}',
            '{"id":1,"other":2}',
        ]
    )
    good = '{"id":1,"who":{"name":"ann","age":3},"tags":[{"k":"x"}]}\n'
    return Drawn(
        "json", {"a.json": (good + bad).encode()}, None, columns=NESTED, only_typed=True, only_filled=True
    )


KINDS: dict[str, Callable[[Random], Drawn]] = {
    one.__name__.strip("_"): one
    for one in (
        _good,
        _line_ends,
        _crlf,
        _empty_and_null,
        _bom,
        _compressed,
        _several,
        _dialect,
        _no_header,
        _schema,
        _encoded,
        _backslash,
        _inches,
        _formats,
        _bad_field,
        _ragged,
        _bad_quotes,
        _bad_headers,
        _bad_bytes,
        _laid_out,
        _key_cases,
        _nested,
        _numbers_as_texts,
        _bad_json,
        _bad_json_value,
        _bad_nested,
    )
}
