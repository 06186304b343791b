"""CSV and JSON as the readers of Spark's tasks take them apart, against DuckDB's: equal rows, or an error."""

import io
import json
import re
import tracemalloc
from decimal import Decimal
from random import Random

import duckdb
import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.catalog.snapshot.inlined_tables import duckdb_type
from airflow_provider_ducklake.lake.errors import CatalogError, DuckLakeError, InvalidInputError
from airflow_provider_ducklake.lake.format.schema import TableSchema, new_columns
from airflow_provider_ducklake.lake.format.types.ducklake_types import parse_type
from airflow_provider_ducklake.lake.format.types.literals import parse_literal
from airflow_provider_ducklake.lake.format.types.values import format_physical
from airflow_provider_ducklake.lake.spark.text_parts import _values
from airflow_provider_ducklake.lake.storage.arrow.arrow_types import physical_values
from airflow_provider_ducklake.lake.storage.rows import csv_rows, json_rows
from airflow_provider_ducklake.lake.storage.rows.inlined_values import _array
from airflow_provider_ducklake.lake.storage.rows.text_values import Formats, values_of_texts

FILES = {"ci": 400, "full": 20_000}
_PIECES = ("a", '"', '""', '"', ",", "\n", "\r\n", "\r", " ", "é", '"x"', '"a,b"', '"a\nb"', "1", "\\")
_FIELDS = ("a", "", "1", '""', '"x"', '"a,b"', '"a\nb"', '"a""b"', '"\r\n"', 'x"y', " z ", '"q"')
_DAMAGE = (b'"', b",", b"\n", b"\r", b"\xff")


def csv_text(draw: Random, columns: int) -> bytes:
    """Draw records of so many fields, some damaged, or any pieces that may stand in a CSV."""
    if draw.random() < 0.4:
        return "".join(draw.choice(_PIECES) for _ in range(draw.randint(1, 14))).encode()
    end = draw.choice(["\n", "\n", "\r\n"])
    rows = (",".join(draw.choice(_FIELDS) for _ in range(columns)) + end for _ in range(draw.randint(1, 5)))
    data = "".join(rows).encode()
    place = draw.randrange(len(data) + 1)
    return data[:place] + draw.choice(_DAMAGE) + data[place:] if draw.random() < 0.2 else data


def our_csv(data: bytes, names: list[str]) -> list[tuple[str | None, ...]] | None:
    """Return the fields of each record, or None for an error."""
    rows = []
    try:
        is_old_mac = b"\r" in data and b"\n" not in data
        for block in csv_rows.blocks(
            csv_rows.Part(io.BytesIO(data)), csv_rows.Dialect(), is_old_mac=is_old_mac
        ):
            if block.content.strip(b"\r\n") or len(names) == 1:
                found = csv_rows.table_of(block, names, csv_rows.Dialect()).to_pylist()
                rows += [tuple(row.values()) for row in found]
    except DuckLakeError:
        return None
    return rows


def duckdb_rows(read: str) -> list[tuple[str | None, ...]] | None:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        try:
            return connection.execute(f"FROM {read}").fetchall()
        except duckdb.Error:
            return None


@pytest.mark.drawn(one_in=1)
@pytest.mark.parametrize("block_bytes", [7, 2**20])
def test_each_field_of_a_csv_is_the_one_that_duckdb_reads(request, seed, tmp_path, monkeypatch, block_bytes):
    monkeypatch.setattr(csv_rows, "BLOCK_BYTES", block_bytes)  # records lie over the borders of blocks
    draw, same = Random(f"{seed} {block_bytes}"), 0
    for _ in range(FILES[request.config.option.size]):
        names = ["a", "b", "c"][: draw.randint(1, 3)]
        data = csv_text(draw, len(names))
        (tmp_path / "a.csv").write_bytes(data)

        ours = our_csv(data, names)

        if ours is None or data.count(b"\r\n") not in (0, data.count(b"\n")):
            continue  # DuckDB reads lines that end in two ways as it may
        types = dict.fromkeys(names, "VARCHAR")
        theirs = duckdb_rows(
            f"read_csv('{tmp_path}/a.csv', columns={types}, header=false, auto_detect=false, delim=',', "
            "quote='\"', escape='\"', allow_quoted_nulls=false, strict_mode=true)"
        )
        assert theirs in (None, ours), data
        same += theirs is not None
    assert same > FILES[request.config.option.size] / 10


_TYPES = (
    "int64",
    "int8",
    "uint64",
    "float64",
    "float32",
    "decimal(9,2)",
    "boolean",
    "date",
    "timestamp",
    "timestamptz",
)
_VALUES = """
7| 7|7 |+7|-7|007|1.0|1.5|1e2|1e-2|0x1F|1d|1f|1,5|1.234,50|12%|.5|5.|1.005|1.004999|1e400|3e39|nan
|NaN|inf|-inf|Infinity|--7|300|16777217|0.1|1 000|1e|-0|123456789012345678901234567890|true|True|t|f
|1|0|yes|no|on|2|2024-01-05|2024-1-5|2024-02-30|2024-07-01 12:00:00|2024-07-01 12:00:00+02:00
|0001-01-01|9999-12-31|10000-01-01|0001-01-01 (BC)|infinity|20240105|2024-01|05.01.2024
|2024-01-05 10:00|2024-01-05 10|2024-01-05T10:00:00|2024-01-05 10:00:00.123456
|2024-01-05 10:00:00.1234567|2024-01-05 10:00:00Z|2024-01-05 10:00:00 UTC|2024-01-05 10:00:00 +02:00
|2024-01-05 24:00:00|2024-01-05 10:60:00|2024-1-5 1:2:3|epoch
""".replace("\n", "").split("|")


@pytest.mark.parametrize("name", _TYPES)
def test_a_text_is_the_value_that_duckdb_casts_it_to(name):
    type_ = parse_type(name)
    read = set()
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for text in _VALUES:
            try:
                (ours,) = physical_values(values_of_texts(pa.array([text]), type_, Formats()), type_)
            except ValueError:
                continue
            read.add(text)
            cast = ", ".join([f"CAST(? AS {duckdb_type(type_)})::VARCHAR"] * 2)
            (theirs, again) = connection.execute(
                f"SELECT {cast}", [text, format_physical(type_, ours)]
            ).fetchone()
            assert theirs == again, text
    assert read


@pytest.mark.parametrize("text", ["", "a b", r"\x41b", r"\x4", r"\xZZ", r"\X41", "\\", "é"])
def test_bytes_are_those_that_duckdb_casts_a_text_to(text):
    try:
        (wanted,) = duckdb.execute("SELECT CAST(? AS BLOB)", [text]).fetchone()
    except duckdb.Error:
        with pytest.raises(ValueError, match=re.escape(text)):
            values_of_texts(pa.array([text]), parse_type("blob"), Formats())
    else:
        assert values_of_texts(pa.array([text]), parse_type("blob"), Formats()).to_pylist() == [wanted]


_JSON_TYPES = (
    *_TYPES,
    "varchar",
    "int64[]",
    "struct(a int64, b varchar)",
    "map(varchar, int64)",
    "struct(a decimal(9,2), c varchar[])[]",
)
_JSON_VALUES = (
    *("1", "-7", "300", "1.5", "1e2", "1.005", '"7"', '"x"', '""', "null", "true", '"true"', '" 7"', "1.0"),
    *('"2024-01-05"', '"2024-01-05 10:00:00"', '"2024-01-05T10:00:00Z"', '"1,5"', '"1.5"', '"é\\n"', "NaN"),
    *("123456789012345678901234567890", "[]", "[1,2]", "[1,null]", '["a"]', '{"a":1,"b":"x"}', '{"a":1}'),
    *("{}", '{"x":1}', '{"x":1,"y":2}', '[{"a":1.5,"c":["z"]}]', '[{"a":"1.5"}]'),
)


def our_json(data: bytes, schema: TableSchema, *, by_arrow: bool) -> pa.Table | None:
    """Return the records, as Arrow's reader reads them where it can, or by Python's; None: an error."""
    try:
        read = json_rows.Shape() if by_arrow else json_rows.Shape({"object", "array"})
        how = json_rows.Reading(schema.columns, Formats(), selects=False, shape=read)
        return json_rows.table_of(data, 0, how, is_array=False)
    except DuckLakeError:
        return None


def test_each_value_of_json_is_the_one_that_duckdb_reads(request, seed, tmp_path):
    draw, same = Random(seed), 0
    for _ in range(FILES[request.config.option.size]):
        name = draw.choice(_JSON_TYPES)
        values = draw.sample(_JSON_VALUES, draw.choice([1, 1, 2, 3]))
        if name == "varchar":  # of which DuckDB makes 100.0
            values = [value for value in values if value != "1e2"] or ["1"]
        lines = [f'{{"k":{number},"v":{draw.choice(values)}}}' for number in range(draw.randint(1, 4))]
        data = "\n".join(lines).encode()
        (tmp_path / "a.json").write_bytes(data)
        schema = new_columns({"k": "int64", "v": name})

        ours = our_json(data, schema, by_arrow=True)

        slowly = our_json(data, schema, by_arrow=False)
        assert (ours is None) == (slowly is None), data
        if ours is None:
            continue
        assert str(ours.to_pylist()) == str(slowly.to_pylist()), data
        types = {"k": "BIGINT", "v": duckdb_type(schema.columns[1].type)}
        theirs = duckdb_rows(f"read_json('{tmp_path}/a.json', columns={types}, format='newline_delimited')")
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            connection.register("ours", ours)
            assert str(connection.execute("FROM ours").fetchall()) == str(theirs), (name, data)
        same += 1
    assert same > FILES[request.config.option.size] / 10


@pytest.mark.parametrize("type_", ["decimal(9,2)", "decimal(38,0)", "decimal(38,18)", "decimal(38,38)"])
@pytest.mark.parametrize("exponent", [*range(-45, 46, 5), -2, 2, 9, -999_999_999, 999_999_999])
@pytest.mark.parametrize(
    "digits", ["1234567890123", "1", "0", "-1.50", "1" * 38, "1" * 39, "0." + "0" * 38 + "1", "1" + "0" * 40]
)
def test_decimals_of_any_spelling_are_exact_or_refused(type_, exponent, digits):
    """Of pyarrow 26's own cast some become another number, and some end the process."""
    wanted, text = parse_type(type_), f"{digits}e{exponent}"
    exact = Decimal(text).as_tuple() if abs(exponent) < 100 else None
    columns = new_columns({"d": type_}).columns

    found = []
    for read in (
        lambda: values_of_texts(pa.array([text, "0"]), wanted, Formats())[0],
        lambda: json_rows.table_of(
            f'{{"d": 0}}\n{{"d": {text}}}'.encode(),
            0,
            json_rows.Reading(columns, Formats(), selects=False),
            is_array=False,
        )["d"][1],
        lambda: _array(columns[0], [text, "0"])[0],
    ):
        try:
            found.append(read().as_py())
        except (ValueError, DuckLakeError):
            found.append(None)

    found.pop()  # inlined values are rounded, as DuckDB rounds them
    assert all(one is None or (exact is not None and one == Decimal(text)) for one in found), found
    if exact is not None and abs(exponent) <= 5 and digits in ("1", "0") and exponent >= 0:
        assert None not in found or type_ == "decimal(38,38)"


def test_blocks_of_other_keys_and_kinds_are_read_as_each_by_itself(request, seed):
    draw = Random(seed)
    types = {"id": "int64", "s": "struct(a int64, b varchar)", "note": "varchar"}
    schema = new_columns({name: parse_type(type_) for name, type_ in types.items()})
    records = (
        *(
            '{"id": 1}',
            '{"ID": 2}',
            '{"id": 3, "s": {"a": 1}}',
            '{"s": {"A": 2, "b": "x"}}',
            '{"other": [1]}',
        ),
        *('{"id": "4"}', '{"id": 5, "other": {"id": 6}}', '{"s": {"b": null, "c": 1}, "Note": "n"}', "{}"),
        *('{"id": 6, "Id": 7}', '{"note": 8}', '{"other": 1}', '{"other": "x"}', '{"id": null, "note": "é"}'),
    )
    for _ in range(FILES[request.config.option.size]):
        how = json_rows.Reading(schema.columns, Formats(), selects=True)
        for _ in range(3):
            block = "\n".join(draw.choices(records, k=draw.choice([1, 2, 4]))).encode()
            by_python = json_rows.Shape({"object", "array"})
            alone = json_rows.Reading(schema.columns, Formats(), selects=True, shape=by_python)
            found = [_rows_or_error(block, one) for one in (how, alone)]
            assert found[0] == found[1], block


def test_a_key_that_comes_late_is_read_as_one_that_was_always_there(request, seed):
    draw = Random(seed)
    for _ in range(FILES[request.config.option.size]):
        name, value = draw.choice(_JSON_TYPES), draw.choice(_JSON_VALUES)
        columns = new_columns(
            {"id": "int64", "v": name, "s": parse_type(f"struct(a int64, v {name})")}
        ).columns
        late = draw.choice(['{"id": 2, "v": %s}', '{"s": {"v": %s}}', '{"s": {"a": 1, "V": %s}}']) % value
        how, alone = (json_rows.Reading(columns, Formats(), selects=True) for _ in range(2))
        alone.learn(json_rows.Shape({"object", "array"}))  # only Python reads it

        json_rows.table_of(b'{"id": 1, "s": {"a": 2}}', 0, how, is_array=False)

        assert str(_rows_or_error(late.encode(), how)) == str(_rows_or_error(late.encode(), alone)), (
            name,
            late,
        )


def _rows_or_error(block: bytes, how: json_rows.Reading) -> list[dict[str, object]] | str:
    try:
        return json_rows.table_of(block, 0, how, is_array=False).to_pylist()
    except InvalidInputError as error:
        return str(error)


def test_a_record_of_thousands_of_levels_is_refused_and_ends_no_process():
    deep = b'{"a":' * 20_000 + b"1" + b"}" * 20_000
    texts = b'{"a":"[[[[[[[["}\n' * 1_000  # brackets in texts are no levels

    for block in (deep, b'{"a":' * 61 + b"1" + b"}" * 61):
        with pytest.raises(InvalidInputError, match="more than 60 levels"):
            json_rows.check_levels(block)
    json_rows.check_levels(texts)
    assert json_rows.shape_of(texts, 0, is_array=False).fields["a"].kinds == {"string"}


@pytest.mark.parametrize("has_quotes", [False, True])
def test_a_backslash_outside_of_quotes_stands_for_itself(seed, has_quotes, tmp_path):
    """As DuckDB's reader has it, and Spark's writer writes it."""
    draw, dialect = Random(seed), csv_rows.Dialect(escape="\\")
    fields = [
        "C:\\new\\dir",
        "\\N",
        "tail\\",
        "a",
        "",
        "é\\t",
        *(['"a\\"b"', '"x\\\\y,z"', '"\n"'] * has_quotes),
    ]
    for number in range(100):
        rows = [",".join(draw.choices(fields, k=3)) for _ in range(draw.randint(1, 4))]
        path = tmp_path / f"{number}.csv"
        path.write_text("\n".join(["x,y,1", *rows]) + "\n")
        options = "header=false, all_varchar=true, auto_detect=false, sep=',', quote='\"', escape='\\'"
        columns = "columns={'a': 'VARCHAR', 'b': 'VARCHAR', 'c': 'VARCHAR'}"
        wanted = duckdb.sql(f"FROM read_csv('{path}', {options}, {columns})").fetchall()

        (block,) = csv_rows.blocks(csv_rows.Part(io.BytesIO(path.read_bytes())), dialect, is_old_mac=False)
        found = csv_rows.table_of(block, ["a", "b", "c"], dialect).to_pylist()

        assert [tuple(row.values()) for row in found] == wanted, path.read_text()


@pytest.mark.parametrize(
    ("record", "is_odd"),
    [
        ('{"d": 1.50, "id": "3e45-12e4", "ratio": 1e-05, "n": 123456789012345678901234567890}', False),
        ('{"d": "1.50", "s": {"e": 12}, "note": "1e5, and"}', False),
        ('{"d" : 1e5}', True),
        ('{"d": " 1E-3 " }', True),
        ('{"s": {"e": -1.5e7}, "d": 1}', True),
        ('{"d": 0.00000000000000000000000000000000000001}', True),
        ('{"d": 123456789012345678901}', True),
        ('{"\\u0064": 1e5}', True),
    ],
)
def test_only_decimals_that_pyarrow_may_misread_are_left_to_python(record, is_odd):
    schema = pa.schema({"d": pa.decimal128(38, 18), "s": pa.struct({"e": pa.decimal128(9, 2)})})

    assert json_rows._has_odd_decimals(record.encode(), schema) is is_odd
    listed = pa.schema({"l": pa.list_(pa.decimal128(9, 2))})
    assert json_rows._has_odd_decimals(b'{"l": [1, 2e5]}', listed)
    assert not json_rows._has_odd_decimals(b'{"l": [1, 2.5], "id": "3e45-1"}', listed)


@pytest.mark.parametrize(
    ("block", "said"),
    [
        (b"null", "line 1: 'null' is no object"),
        (b'null {"a": 1}', "line 1: 'null' is no object"),
        (b'{"a": 1}\nnull', "line 2: 'null' is no object"),
        (b'{"a": "caf\xe9"}', "line 1: it is not UTF-8"),
        (b'{"\xe9": 1}', "line 1: it is not UTF-8"),
    ],
)
def test_what_arrows_reader_of_json_takes_for_rows_is_refused(block, said):
    """A first NULL ends the process in pyarrow 26."""
    columns = new_columns({"a": "varchar"}).columns
    for selects in (True, False):
        with pytest.raises(InvalidInputError, match=said):
            json_rows.table_of(block, 0, json_rows.Reading(columns, Formats(), selects), is_array=False)
    with pytest.raises(InvalidInputError, match=said):
        json_rows.shape_of(block, 0, is_array=False)


def test_a_key_given_twice_is_found_in_one_pass():
    keys = ",".join(f'"k{number}": 1' for number in range(200_000))

    with pytest.raises(InvalidInputError, match="'k7' twice"):
        [*json_rows.records(f'{{{keys}, "k7": 2}}'.encode(), 0, is_array=False)]


_NESTED = {
    "decimal(9,2)[]": ("[1.5, 2.25]", "[1.019]", "[0.009]", "[NULL, 7]"),
    "date[]": ("[2024-02-29]", "[2024-02-30]", "['2024-01-05']", "[2024-01-05 10:11:12]"),
    "timestamp[]": ("[2024-01-05 10:00:00]", "[2024-01-05 10:00:00+02]", "[2024-01-05 10:11:12.1234567]"),
    "timestamptz[]": ("[2024-01-05 10:00:00+02]",),
    "int8[]": ("[1, -7]", "[300]", "[1.5]", "[ +7 ]"),
    "boolean[]": ("[true, f]", "[2]"),
    "struct(x int64, y varchar)": ("{'x': 1}", "{'x': 1, 'x': 2}", "{'y': a b}", "{'y': it's}", "{'y': a\\}"),
    "map(varchar, int64)": ("{a=1}", "{NULL=1}", "{a=1, a=2}", "{'NULL'=1}", "{}"),
    "map(int64, varchar)": ("{1=a}", "{1=a, 01=b}"),
    "map(varchar, int64)[]": ("[{a=1}]", "[{NULL=1}]"),
    "varchar[]": ("[a, 'b, c']", "[a''b]", "[{]", "[a\\'b]", '[x"y]', "[[a]", "[]"),
}


@pytest.mark.parametrize("name", _NESTED)
def test_a_text_of_nested_values_is_the_value_that_duckdb_casts_it_to_or_refused(name):
    (column,) = new_columns({"v": name}).columns
    refused = set()
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for text in _NESTED[name]:
            try:
                ours = pa.table({"v": _values(pa.array([text]), column, Formats())})
            except ValueError:
                refused.add(text)
                continue
            connection.register("ours", ours)
            cast = f"SELECT CAST(? AS {duckdb_type(column.type)})"
            assert connection.execute("FROM ours").fetchall() == connection.execute(cast, [text]).fetchall()
    assert refused < set(_NESTED[name])
    assert len(refused) >= len(_NESTED[name]) - 3


def test_a_map_of_the_catalog_with_a_null_key_ends_no_process():
    (column,) = new_columns({"v": "map(varchar, int64)"}).columns

    with pytest.raises(CatalogError, match="a map with the keys None"):
        _array(column, ["{NULL=1}"])


def test_a_part_of_a_csv_ends_with_a_record_or_the_file_is_refused(monkeypatch):
    """A quote within a field turns what is in quotes and what is not round for the parts behind it."""
    monkeypatch.setattr(csv_rows, "_LONGEST", 1000)
    monkeypatch.setattr(csv_rows, "BLOCK_BYTES", 100)
    data = b'a 5" nail\n' + b"a line of a log\n" * 100

    with pytest.raises(
        InvalidInputError, match=r"no record ends in the 1000 bytes behind byte 300.*multiLine"
    ):
        csv_rows.first_record(io.BytesIO(data), 300, csv_rows.Dialect(), is_quoted=True)
    assert csv_rows.first_record(io.BytesIO(data), 1500, csv_rows.Dialect(), is_quoted=True) == len(data)


@pytest.mark.parametrize("escape", ["\\", '"', ""])
def test_without_a_quote_there_is_no_escape(escape):
    dialect = csv_rows.Dialect(quote="", escape=escape)
    (block,) = csv_rows.blocks(csv_rows.Part(io.BytesIO(b'x\\y,"q"\n\\,z\n')), dialect, is_old_mac=False)

    found = csv_rows.table_of(block, ["a", "b"], dialect).to_pylist()

    assert [tuple(row.values()) for row in found] == [("x\\y", '"q"'), ("\\", "z")]


def test_a_mark_of_byte_order_is_one_at_the_beginning_of_a_file_alone():
    file = io.BytesIO("\ufeffa,b\n\ufeffx,y\n".encode())
    (block,) = csv_rows.blocks(csv_rows.Part(file), csv_rows.Dialect(), is_old_mac=False)
    rows = csv_rows.without_first(block, csv_rows.Dialect())

    assert block.content.startswith(b"a,b")
    assert csv_rows.table_of(rows, ["a", "b"], csv_rows.Dialect()).to_pylist() == [{"a": "\ufeffx", "b": "y"}]


@pytest.mark.parametrize("text", ["0xFFFFFFFF", "0X1f", "0xFFFFFFFFFFFFFFFF", "-0x1", "0x", " 0x7F ", "0x1G"])
@pytest.mark.parametrize("name", ["int8", "int32", "int64", "uint32", "uint64", "int128"])
def test_hexadecimal_digits_are_no_integer(name, text):
    """Arrow takes them for bits: 0xFFFFFFFF is its -1."""
    with pytest.raises(ValueError, match="0"):
        values_of_texts(pa.array([text, "1"]), parse_type(name), Formats())


@pytest.mark.parametrize(
    "value", ['"\\u0031e-2147483647"', '"\\u0033e30"', '"1\\u00650"', '"12345\\u0065\\u0032\\u0036"']
)
def test_escaped_digits_of_a_decimal_are_read_as_digits(value):
    columns = new_columns({"d": "decimal(38,10)"}).columns
    how = json_rows.Reading(columns, Formats(), selects=True)
    try:
        (found,) = json_rows.table_of(f'{{"d": {value}}}'.encode(), 0, how, is_array=False)["d"].to_pylist()
    except InvalidInputError:
        return
    assert found == Decimal(json.loads(value))


def test_escapes_of_letters_leave_decimals_to_arrow():
    """As Python writes what is not ASCII."""
    schema = pa.schema({"d": pa.decimal128(9, 2)})

    assert not json_rows._has_odd_decimals(b'{"s": "caf\\u00e9 1", "d": 1.50}', schema)
    assert json_rows._has_odd_decimals(b'{"s": "caf\\u00e9", "\\u0064": 1e5}', schema)
    assert json_rows._has_odd_decimals(b'{"s": "\\u0031", "d": 1}', schema)


def test_a_pattern_of_dates_takes_columns_without_a_value():
    formats = Formats(date="dd.MM.yyyy")

    for texts in ([], [None], [None, "31.01.2024"]):
        found = values_of_texts(pa.array(texts, pa.string()), parse_type("date"), formats)
        assert found.null_count == min(1, len(texts))


def test_a_long_text_takes_no_hundred_times_its_memory():
    deep = b'{"a":"' + b"[" * 100 + b"x" * 20_000_000 + b'"}'
    tracemalloc.start()
    try:
        json_rows.check_levels(deep)
        assert parse_literal(parse_type("varchar[]"), f"['{'x' * 5_000_000}']")
        assert tracemalloc.get_traced_memory()[1] < 200_000_000
    finally:
        tracemalloc.stop()
