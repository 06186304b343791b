"""Laws of statistics: bounds bound, merging forgets nothing, unknown stays unknown."""

from hypothesis import example, given
from hypothesis import strategies as st

from airflow_provider_ducklake.lake.format.files import (
    STRING_BOUND_BYTES,
    ColumnStats,
    TableColumnStats,
    blob_bounds,
    merge_files,
    string_bounds,
)
from airflow_provider_ducklake.lake.format.snapshots import ColumnId
from airflow_provider_ducklake.lake.format.types.ducklake_types import ScalarType, is_float
from airflow_provider_ducklake.lake.format.types.values import format_physical, order_key
from tests.properties.strategies import ordered_scalars, physical, typed_pairs

COLUMN = ColumnId(1)
encodable = st.characters(exclude_categories=["Cs"])
letters = st.sampled_from(["a", "z", "~", "\x7f", "é", "€", "😀", "\0"]) | encodable
long_texts = st.builds(
    lambda head, filling, count, tail: (head + filling * count + tail).encode(),
    st.text(letters, max_size=3),
    letters,
    st.integers(0, 300),
    st.text(letters, max_size=3),
)
long_blobs = st.builds(
    lambda head, filling, count, tail: head + filling * count + tail,
    st.binary(max_size=3),
    st.sampled_from([b"\xff", b"\xfe", b"\0", b"a"]),
    st.integers(0, 300),
    st.binary(max_size=3),
)


@given(st.lists(long_texts, min_size=1, max_size=5))
@example(["\U0010ffff".encode() * 70])
@example([("a" * 255 + "\x7f").encode(), ("a" * 255 + "\x7fb").encode()])
def test_string_bounds_bound_and_fit_the_catalog(values):
    low, high = string_bounds(min(values), max(values))

    if low is not None:
        assert low.encode() <= min(values)
        assert len(low.encode()) <= STRING_BOUND_BYTES
        assert "\0" not in low
    if high is not None:
        assert high.encode() >= max(values)
        assert len(high.encode()) <= STRING_BOUND_BYTES
        assert "\0" not in high


@given(st.lists(long_texts, min_size=1, max_size=5))
def test_short_text_without_nul_is_its_own_bound(values):
    if all(len(value) <= STRING_BOUND_BYTES and b"\0" not in value for value in values):
        assert string_bounds(min(values), max(values)) == (min(values).decode(), max(values).decode())


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_string_bounds_take_any_bytes(one, other):
    string_bounds(min(one, other), max(one, other))


@given(st.lists(long_blobs, min_size=1, max_size=5))
def test_blob_bounds_bound_in_the_order_of_their_texts(values):
    low, high = blob_bounds(min(values), max(values))

    if low is not None and high is not None:
        texts = [value.hex().upper() for value in values]
        assert low <= min(texts)
        assert high >= max(texts)
        assert max(len(low), len(high)) <= 2 * STRING_BOUND_BYTES
        keys = [order_key(ScalarType("blob"), text) for text in (low, *texts, high)]
        assert keys[0] == min(keys)
        assert keys[-1] == max(keys)


@given(typed_pairs)
def test_texts_are_ordered_as_their_values(drawn):
    type_, one, other = drawn

    keys = [order_key(type_, format_physical(type_, value)) for value in (one, other)]

    assert (keys[0] < keys[1]) == (one < other)
    assert (keys[0] == keys[1]) == (one == other)


def column_stats(type_) -> st.SearchStrategy[ColumnStats]:
    def of_values(values: list, nulls: int, nan: int) -> ColumnStats:
        texts = sorted(
            (format_physical(type_, value) for value in values), key=lambda text: order_key(type_, text)
        )
        contains_nan = bool(nan) if is_float(type_) else None
        return ColumnStats(
            COLUMN,
            len(values) + bool(contains_nan),
            nulls,
            texts[0] if texts else None,
            texts[-1] if texts else None,
            contains_nan,
            only_nan=bool(contains_nan) and not texts,
        )

    known = st.builds(of_values, st.lists(physical(type_), max_size=4), st.integers(0, 2), st.integers(0, 1))
    unknown = st.sampled_from(
        [ColumnStats(COLUMN, 3, 0, None, None, None), ColumnStats(COLUMN, None, None, None, None, None)]
    )
    return st.one_of(known, known, known, unknown)


def typed_stats(number: int) -> st.SearchStrategy:
    return ordered_scalars.flatmap(
        lambda type_: st.tuples(st.just(type_), *(column_stats(type_) for _ in range(number)))
    )


def canonical(type_, row: TableColumnStats | None):
    """0.0 and -0.0 are one bound: which of them is kept depends on the order."""
    if row is None:
        return None
    bounds = [None if text is None else order_key(type_, text) for text in (row.min_value, row.max_value)]
    return row.contains_null, row.contains_nan, *bounds


def merged(type_, *files: ColumnStats) -> TableColumnStats | None:
    return merge_files([{COLUMN: file} for file in files], {COLUMN: type_})[COLUMN]


@given(typed_stats(2))
def test_merging_is_commutative(drawn):
    type_, one, other = drawn

    assert canonical(type_, merged(type_, one, other)) == canonical(type_, merged(type_, other, one))


@given(typed_stats(3))
def test_merging_is_associative(drawn):
    type_, *files = drawn
    rows = [TableColumnStats.of_file(file, type_) for file in files]
    if None in rows:
        assert merged(type_, *files) is None
        return
    one, two, three = rows

    left = one.merge(two, type_).merge(three, type_)

    assert canonical(type_, left) == canonical(type_, one.merge(two.merge(three, type_), type_))
    assert canonical(type_, left) == canonical(type_, merged(type_, *files))


@given(typed_stats(2))
def test_unknown_absorbs(drawn):
    type_, one, other = drawn

    row = merged(type_, one, other)

    assert (row is None) == (one.bounds_unknown or other.bounds_unknown)


@given(typed_stats(2))
def test_a_merge_covers_both(drawn):
    type_, *files = drawn
    row = merged(type_, *files)
    if row is None:
        return
    for file in files:
        assert row.contains_null or not file.null_count
        assert row.contains_nan or not file.contains_nan
        if file.min_value is not None:
            assert order_key(type_, row.min_value) <= order_key(type_, file.min_value)
            assert order_key(type_, row.max_value) >= order_key(type_, file.max_value)


def test_a_column_that_some_file_says_nothing_of_has_no_row():
    known = ColumnStats(COLUMN, 1, 0, "1", "1")

    assert merge_files([{COLUMN: known}, {}], {COLUMN: ScalarType("int64")}) == {COLUMN: None}
