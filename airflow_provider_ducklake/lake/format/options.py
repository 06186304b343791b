"""Options of a lake: names, defaults, checks, and the order in which scopes answer.

*Source:* ``ducklake_metadata``; docs/sources.md, options. Values are texts in the catalog; an option's rows
live at global, schema or table scope and the narrowest one counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from ..errors import InvalidOptionError, UnsupportedFeatureError
from .types.texts import parse_age
from .versions import DEFAULT, SpecVersion, WriteVersion, write_version

_KEY_BYTES = "key_bytes"  # no option of the format: a fact about the lake
SKIP_STATS_COLUMNS = "skip_stats_columns"  # of a table only: ids of columns without bounds


@dataclass(frozen=True, slots=True)
class OptionRow:
    """A row of ``ducklake_metadata``; ``scope`` is None, ``schema`` or ``table``."""

    key: str
    value: str
    scope: str | None = None
    scope_id: int | None = None


def _boolean(value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ValueError(value)
    return value.lower() == "true"


_MOST = 2**64 - 1  # the reference's numbers have no sign
_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}


def parse_bytes(text: str) -> int:
    """Return a size in bytes.

    >>> parse_bytes("512MB"), parse_bytes("128000000")
    (512000000, 128000000)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    if match is None or match[2].lower() not in _UNITS:
        raise ValueError(text)
    return _within(0, _MOST, int(min(float(match[1]), 2.0**64) * _UNITS[match[2].lower()]))


def _within(least: int, most: int, number: int) -> int:
    if not least <= number <= most:
        raise ValueError(number)
    return number


def _whole(least: int) -> Callable[[str], int]:
    return lambda value: _within(least, _MOST, int(value))


def _share(value: str) -> float:
    number = float(value)
    if not 0 <= number <= 1:
        raise ValueError(value)
    return number


def _column_ids(value: str) -> frozenset[int]:
    """Return the ids of a list such as ``2,3``; what is no id is ignored, as in the reference."""
    return frozenset(int(one) for one in value.split(",") if one.strip().isdecimal())


def _interval(value: str) -> str:
    parse_age(value)
    return value


def _one_of(*words: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        folded = {word.lower(): word for word in words}
        if value.lower() not in folded:
            raise ValueError(value)
        return folded[value.lower()]

    return parse


def _parquet_version(value: str) -> str:
    """Return a version as it is stored; DuckDB sets it as a number."""
    return _one_of("V1", "V2")(f"V{value}" if value.isdecimal() else value)


@dataclass(frozen=True, slots=True)
class OptionSpec:
    """An option of the format: how its text is read, and the reference's default (None: no default).

    ``most`` is the greatest number that can be set here; a lake may have a greater one by the reference.
    """

    parse: Callable[[str], object]
    default: str | None
    scoped: bool = True
    expects: str = "another value"
    most: int = _MOST


_SWITCH, _COUNT, _SIZE = "true or false", "a whole number from {} to 2**64 - 1", "a size such as '512MB'"
_AGE = "an interval such as '7 days'"
_CODECS = ("uncompressed", "snappy", "gzip", "zstd", "brotli", "lz4", "lz4_raw")
OPTIONS: Mapping[str, OptionSpec] = {
    "version": OptionSpec(str, None, scoped=False),
    "created_by": OptionSpec(str, None, scoped=False),
    "data_path": OptionSpec(str, None, scoped=False),
    "encrypted": OptionSpec(_boolean, "false", scoped=False),
    "data_inlining_row_limit": OptionSpec(_whole(0), "10", expects=_COUNT.format(0)),
    "parquet_compression": OptionSpec(_one_of(*_CODECS), None, expects=f"one of {', '.join(_CODECS)}"),
    "parquet_version": OptionSpec(_parquet_version, None, expects="1 or 2"),
    "parquet_compression_level": OptionSpec(_whole(0), None, expects="a whole number from 0 to 22", most=22),
    "parquet_row_group_size": OptionSpec(_whole(1), "122880", expects=_COUNT.format(1)),
    "parquet_row_group_size_bytes": OptionSpec(parse_bytes, None, expects=_SIZE),
    "target_file_size": OptionSpec(parse_bytes, "512000000", expects=_SIZE),
    "hive_file_pattern": OptionSpec(_boolean, "true", expects=_SWITCH),
    "require_commit_message": OptionSpec(_boolean, "false", expects=_SWITCH),
    "rewrite_delete_threshold": OptionSpec(_share, "0.95", expects="a number from 0 to 1"),
    "delete_older_than": OptionSpec(_interval, "2 days", expects=_AGE),
    "expire_older_than": OptionSpec(_interval, None, expects=_AGE),
    "auto_compact": OptionSpec(_boolean, "true", expects=_SWITCH),
    "per_thread_output": OptionSpec(_boolean, "false", expects=_SWITCH),
    "write_deletion_vectors": OptionSpec(_boolean, "false", expects=_SWITCH),
    "sort_on_insert": OptionSpec(_boolean, "true", expects=_SWITCH),
    SKIP_STATS_COLUMNS: OptionSpec(_column_ids, ""),
}
# Where one is set, whatever it says now, files may be coded as Spark's own reader does not decode.
OF_CODINGS = ("parquet_compression", "parquet_version")
_FIXED = frozenset(key for key, spec in OPTIONS.items() if not spec.scoped)


def check_option(key: str, of: str = "") -> str:
    """Return the key of an option that can be set; ``of`` says in the message whose it is."""
    if key not in OPTIONS or key in _FIXED:
        known = ", ".join(sorted(OPTIONS.keys() - _FIXED))
        raise InvalidOptionError(f"{key!r} is not an option{of} that can be set; the options are: {known}.")
    return key


def option_text(key: str, value: object, of: str = "") -> str:
    """Return the text that the catalog stores for an option, as the reference spells it.

    ``of`` says in the message whose it is.

    >>> option_text("target_file_size", "128MB"), option_text("hive_file_pattern", False)
    ('128000000', 'false')
    """
    spec = OPTIONS[check_option(key, of)]
    if key == SKIP_STATS_COLUMNS:
        raise InvalidOptionError(f"Option {key} names columns of a table: set it for a table.")
    wrong = InvalidOptionError(f"Option {key}{of} cannot be {value!r}. Give {spec.expects}.")
    if not isinstance(value, str | float | int):
        raise wrong
    text = str(value).lower() if isinstance(value, bool) else str(value)
    try:
        parsed = spec.parse(text)
    except ValueError:
        raise wrong from None
    if isinstance(parsed, int) and parsed > spec.most:
        raise wrong
    if isinstance(parsed, bool):
        return str(parsed).lower()
    return f"{parsed:.6f}" if isinstance(parsed, float) else str(parsed)


@dataclass(frozen=True, slots=True)
class Options:
    """The options in force for a table, a schema or the lake: the narrowest row of each key."""

    texts: Mapping[str, str]

    @classmethod
    def effective(
        cls, rows: Iterable[OptionRow], schema_id: int | None = None, table_id: int | None = None
    ) -> Options:
        """Return the options for that scope: table before schema before global."""
        wanted = {(None, None): 0, ("schema", schema_id): 1, ("table", table_id): 2}
        found: dict[str, tuple[int, str]] = {}
        for row in rows:
            if row.scope not in (None, "schema", "table"):
                raise UnsupportedFeatureError(
                    f"Option {row.key!r} has scope {row.scope!r}, unknown to this release."
                )
            if row.key == SKIP_STATS_COLUMNS and row.scope != "table":
                continue  # an id is a column of one table only
            rank = wanted.get((row.scope, row.scope_id))
            if rank is not None and rank >= found.get(row.key, (-1, ""))[0]:
                found[row.key] = (rank, row.value)
        return cls({key: value for key, (_, value) in found.items()})

    def get(self, key: str) -> object | None:
        """Return the parsed value, the format's default, or None where there is neither."""
        spec = OPTIONS[key]
        text = self.texts.get(key, spec.default)
        if text is None:
            return None
        try:
            return spec.parse(text)
        except ValueError:
            raise InvalidOptionError(f"Option {key} of the lake has the unreadable value {text!r}.") from None

    def integer(self, key: str) -> int:
        """Return an option that is a number and has a default, or the greatest with a sign instead of it."""
        value = self.get(key)
        assert isinstance(value, int)
        return min(value, 2**63 - 1)

    def share(self, key: str) -> float:
        """Return an option that is a share from 0 to 1 and has a default."""
        value = self.get(key)
        assert isinstance(value, float)
        return value

    def age(self, key: str) -> timedelta | None:
        """Return an option that is an interval; None where it has neither a value nor a default."""
        value = self.get(key)
        return None if value is None else parse_age(str(value))

    def flag(self, key: str) -> bool:
        """Return an option that is true or false."""
        return self.get(key) is True

    @property
    def skipped_columns(self) -> frozenset[int]:
        """Ids of the columns without bounds in statistics; what lies in them has none either."""
        return _column_ids(self.texts.get(SKIP_STATS_COLUMNS, ""))

    def changed(self, key: str, text: str | None, outer: Options) -> Options:
        """Return the options with another text; None: the one in force around them (``outer``)."""
        text = outer.texts.get(key) if text is None else text
        rest = {one: kept for one, kept in self.texts.items() if one != key}
        return Options(rest if text is None else {**rest, key: text})

    def with_keys_of(self, key_bytes: int) -> Options:
        """Return the options of a lake whose new files have keys of so many bytes."""
        return Options({**self.texts, _KEY_BYTES: str(key_bytes)}) if key_bytes else self

    @property
    def key_bytes(self) -> int:
        """How long the keys of new files are; 0: files are not encrypted."""
        return int(self.texts.get(_KEY_BYTES, self.writer.key_bytes)) if self.flag("encrypted") else 0

    @property
    def writer(self) -> WriteVersion:
        """The rules of the lake's version for a writer; without a row for it, those of new lakes."""
        text = self.texts.get("version")
        return write_version(DEFAULT if text is None else SpecVersion.parse(text))

    @property
    def allows_inlining(self) -> bool:
        """Return True if small inserts may go to the catalog, so that some column names are taken."""
        return self.integer("data_inlining_row_limit") > 0

    def is_set(self, key: str) -> bool:
        """Return True if a client stored the option; our own defaults apply only if none did."""
        return key in self.texts
