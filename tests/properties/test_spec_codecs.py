"""Laws of the format's texts: whatever is written is read back."""

import struct

from hypothesis import example, given
from hypothesis import strategies as st

from airflow_provider_ducklake.lake.errors import one_line
from airflow_provider_ducklake.lake.format.names.identifiers import (
    QualifiedName,
    SchemaPath,
    quote,
    quote_if_needed,
    split_parts,
)
from airflow_provider_ducklake.lake.format.names.paths import (
    CatalogPath,
    directory_path,
    is_absolute,
    relative_to,
)
from airflow_provider_ducklake.lake.format.types.ducklake_types import (
    catalog_name,
    children_of,
    parse_type,
    with_children,
)
from airflow_provider_ducklake.lake.format.types.values import (
    civil_from_days,
    days_from_civil,
    format_float32,
    format_physical,
    parse_physical,
)
from airflow_provider_ducklake.lake.transaction.changes_made import (
    ChangeKind,
    ChangeRecord,
    format_changes,
    parse_changes,
)
from tests.properties.strategies import names, typed_values, types


@given(types)
def test_a_type_reads_back_from_its_text(type_):
    assert parse_type(str(type_)) == type_


@given(types)
def test_a_type_is_put_together_from_its_catalog_rows(type_):
    assert with_children(catalog_name(type_), children_of(type_)) == type_


@given(typed_values)
def test_a_value_reads_back_from_its_text(typed):
    type_, value = typed

    parsed = parse_physical(type_, format_physical(type_, value))

    assert parsed == value
    assert str(parsed) == str(value)  # tells 0.0 from -0.0


@given(st.integers(-(2**31), 2**31))
def test_days_and_dates_are_each_others_inverse(days):
    assert days_from_civil(*civil_from_days(days)) == days


@given(st.floats(width=32, allow_nan=False))
@example(1.17549435e-38)
@example(3.4028234663852886e38)
@example(1e-45)
def test_no_shorter_text_reads_back_as_the_same_float32(value):
    text = format_float32(value)

    assert struct.pack("<f", float(text)) == struct.pack("<f", value)
    digits = len(repr(float(text)).split("e")[0].replace(".", "").replace("-", "").strip("0"))
    if digits > 1 and value not in (float("inf"), float("-inf")):
        shorter = float(f"{value:.{digits - 1}g}")
        assert abs(shorter) > 3.5e38 or struct.pack("<f", shorter) != struct.pack("<f", value)


@given(st.lists(names, min_size=1, max_size=4), names)
def test_a_qualified_name_reads_back_from_its_text(schema, table):
    name = QualifiedName.of((*schema, table))

    assert QualifiedName.of(str(name)) == name
    assert SchemaPath.of(str(name.schema)) == name.schema


@given(st.text("a\n\t\r\x1b\x7f\x85\u202e\u2028\\\"'. &U0Aé", min_size=1))
def test_a_name_is_one_line_that_reads_back_whatever_it_holds(table):
    name = QualifiedName.of(("main", table))

    assert QualifiedName.of(str(name)) == name
    assert one_line(str(name)) == str(name)


@given(st.lists(names, min_size=1, max_size=4))
def test_dotted_names_split_where_they_were_joined(parts):
    assert split_parts(".".join(map(quote, parts))) == parts
    assert split_parts(".".join(map(quote_if_needed, parts))) == parts


schema_paths = st.lists(names, min_size=1, max_size=4).map(lambda parts: SchemaPath(tuple(parts)))
words = st.from_regex(r"[a-z]+(_[a-z]+)*", fullmatch=True)
named = st.sampled_from(
    [kind for kind in ChangeKind if kind.startswith("created_") and kind is not ChangeKind.CREATED_SCHEMA]
)
numbered = st.sampled_from([kind for kind in ChangeKind if not kind.startswith("created_")])
known_records = st.one_of(
    st.builds(ChangeRecord, st.just(ChangeKind.CREATED_SCHEMA), name=schema_paths),
    st.builds(ChangeRecord, named, name=st.builds(QualifiedName, schema_paths, names)),
    st.builds(ChangeRecord, numbered, object_id=st.integers(0, 2**63)),
)
future_words = words.map(lambda word: f"future_{word}")
records = known_records | st.builds(
    lambda word, object_id: ChangeRecord(None, object_id, word=word), future_words, st.integers(0, 2**63)
)


@given(st.lists(records, max_size=8))
def test_changes_read_back_from_their_text(changes):
    text = format_changes(changes)

    assert set(parse_changes(text)) == set(changes)
    assert len(parse_changes(text)) == len(set(changes))
    assert format_changes(parse_changes(text)) == text


segments = st.text(
    st.characters(exclude_characters="\0/\\", exclude_categories=["Cs"]), min_size=1, max_size=6
)
file_names = (
    st.lists(segments, min_size=1, max_size=3).map("/".join).filter(lambda name: not is_absolute(name))
)
roots = st.sampled_from(["/lake", "s3://bucket/lake", "gs://b", "/a b%20ü/"])


@given(roots, st.lists(segments, max_size=3), file_names)
def test_a_file_lies_where_its_stored_path_says(root, folders, name):
    directory = directory_path("/".join([root, *folders]))
    full = directory + name

    stored = relative_to(full, directory)

    assert stored == CatalogPath(name, is_relative=True)
    assert stored.below(directory) == full


@given(roots, file_names)
def test_a_file_elsewhere_keeps_its_full_path(root, name):
    elsewhere = f"s3://elsewhere/{name}" if "://" in root else f"/elsewhere/{name}"

    stored = relative_to(elsewhere, directory_path(root))

    assert stored.below(directory_path(root)) == elsewhere


@given(roots, st.lists(segments, max_size=3))
def test_a_directory_ends_in_one_slash_for_good(root, folders):
    directory = directory_path("/".join([root, *folders]))

    assert directory.endswith("/")
    assert directory_path(directory) == directory
