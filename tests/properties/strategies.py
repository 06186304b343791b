"""What hypothesis draws: names, types, physical values."""

from hypothesis import strategies as st

from airflow_provider_ducklake.lake.format.names.identifiers import fold
from airflow_provider_ducklake.lake.format.types import ducklake_types as dl
from airflow_provider_ducklake.lake.format.types.texts import INTERVAL

INT_RANGES = {
    **{f"int{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64, 128)},
    **{f"uint{bits}": (0, 2**bits - 1) for bits in (8, 16, 32, 64, 128)},
    "date": (-(2**31) + 1, 2**31 - 1),
    "time": (0, 86_400 * 10**6),
    "timetz": (0, 86_400 * 10**6 - 1),
    **dict.fromkeys(
        ("timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns", "timestamptz", "timestamptz_ns"),
        (-(2**63) + 1, 2**63 - 1),
    ),
}

_INT32 = st.integers(-(2**31), 2**31 - 1)
# Microseconds: of hours DuckDB 1.5.5 writes up to ten digits, and reads nine.
_READABLE = st.integers(-(10**9) * 3_600 * 10**6 + 1, 10**9 * 3_600 * 10**6 - 1)
names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=8)
decimals = st.integers(1, 38).flatmap(
    lambda precision: st.builds(dl.DecimalType, st.just(precision), st.integers(0, precision))
)
_NO_TEXTS = {
    dl.ScalarKind.NULL,
    dl.ScalarKind.GEOMETRY,
    dl.ScalarKind.VARIANT,
}  # whose values the catalog does not spell
with_values = {name for name in dl.SCALARS.keys() - dl.NOT_STORABLE if dl.SCALARS[name].kind not in _NO_TEXTS}
without_order = {name for name in with_values if not dl.SCALARS[name].comparable}
storable_scalars = st.sampled_from(sorted(with_values)).map(dl.ScalarType) | decimals
ordered_scalars = st.sampled_from(sorted(with_values - without_order)).map(dl.ScalarType) | decimals


def _structs(members: st.SearchStrategy[dl.DuckLakeType]) -> st.SearchStrategy[dl.StructType]:
    fields = st.lists(
        st.builds(dl.Field, names, members), min_size=1, max_size=4, unique_by=lambda field: fold(field.name)
    )
    return fields.map(lambda found: dl.StructType(tuple(found)))


types: st.SearchStrategy[dl.DuckLakeType] = st.recursive(
    st.sampled_from(sorted(dl.SCALARS)).map(dl.ScalarType) | decimals,
    lambda inner: st.builds(dl.ListType, inner) | st.builds(dl.MapType, inner, inner) | _structs(inner),
    max_leaves=6,
)


def physical(type_: dl.DuckLakeType) -> st.SearchStrategy:  # noqa: C901, PLR0911 - one for each kind of type
    """Draw values of a storable scalar type in physical form, NaN left out."""
    match type_:
        case dl.DecimalType(precision):
            return st.integers(-(10**precision) + 1, 10**precision - 1)
        case dl.ScalarType("boolean"):
            return st.booleans()
        case dl.ScalarType("float32"):
            return st.floats(width=32, allow_nan=False)
        case dl.ScalarType("float64"):
            return st.floats(allow_nan=False)
        case dl.ScalarType("varchar" | "json"):
            return st.text(st.characters(exclude_categories=["Cs"])).map(str.encode)
        case dl.ScalarType("blob"):
            return st.binary()
        case dl.ScalarType("uuid"):
            return st.binary(min_size=16, max_size=16)
        case dl.ScalarType("interval"):
            return st.tuples(_INT32, _INT32, _READABLE).map(lambda parts: INTERVAL.pack(*parts))
        case dl.ScalarType("timestamp_s"):
            return st.integers(-(2**63) // 10**6 + 1, 2**63 // 10**6 - 1).map(lambda seconds: seconds * 10**6)
        case dl.ScalarType(name):
            return st.integers(*INT_RANGES[name])
        case _:
            raise AssertionError(type_)


typed_values = storable_scalars.flatmap(lambda type_: st.tuples(st.just(type_), physical(type_)))
typed_pairs = ordered_scalars.flatmap(
    lambda type_: st.tuples(st.just(type_), physical(type_), physical(type_))
)
