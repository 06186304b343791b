"""Arguments as users and their templates give them.

Imports nothing heavy: operators check them while DAG files are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from ..errors import EmptySourceError, InvalidInputError
from ..format.names.identifiers import fold
from ..format.options import parse_bytes
from ..format.tags import is_tag, tag_name
from ..format.types.texts import parse_duration, parse_time, require_offset

if TYPE_CHECKING:
    from ..spark.job.request import GivenSource
    from .verb import Resolve

Word = TypeVar("Word", bound=StrEnum)
Clauses: TypeAlias = Sequence[Mapping[str, Any]]


TARGET_ALIAS = "target"
SOURCE_ALIAS = "source"
_ALIAS = re.compile(r"[^\W\d]\w*")


def parse_word(name: str, value: str, words: type[Word]) -> Word:
    """Return the word that a user gave."""
    try:
        return words(value)
    except ValueError:
        raise InvalidInputError(f"{name} is {value!r}; choose one of {', '.join(words)}.") from None


def parse_flag(name: str, value: object) -> bool:
    """Return a flag, which a template renders as a string."""
    word = str(value).strip().lower()
    if word not in ("true", "false"):
        raise InvalidInputError(f"{name} is {value!r}; give True or False.")
    return word == "true"


def parse_at(value: object) -> int | datetime | str | None:
    """Parse the id, aware time or tag of a snapshot, as a template renders it, too; None if none is given."""
    if isinstance(value, str):
        word = value.strip()
        if word in ("", "None"):
            return None
        if is_tag(word):
            tag_name(word)
            return word
        return int(word) if word.isdecimal() else parse_time(word)
    if value is None or (isinstance(value, int | datetime) and not isinstance(value, bool)):
        return value
    raise InvalidInputError(
        f"at={value!r}: give a snapshot id, an aware datetime or a tag, such as 'tag:q3'."
    )


def parse_size(name: str, value: int | str | None) -> int | None:
    """Return a number of bytes; None where it is not given."""
    if value is None or value == "None":
        return None
    try:
        return parse_bytes(str(value))
    except ValueError:
        raise InvalidInputError(
            f"{name} is {value!r}. Give a number of bytes, or a string such as '256MB'."
        ) from None


def parse_count(name: str, value: int | str | None) -> int | None:
    """Return a number of 1 or more; None where it is not given."""
    if value is None or value == "None":
        return None
    if not str(value).strip().isdecimal() or int(value) < 1:
        raise InvalidInputError(f"{name} is {value!r}. Give a whole number, 1 or more.")
    return int(value)


def parse_min_rows(value: object) -> int:
    """Return a number of rows, which a template renders as a string."""
    if not str(value).strip().isdecimal():
        raise InvalidInputError(f"min_rows is {value!r}. Give a whole number, 0 or more.")
    return int(str(value))


def is_template(value: object) -> bool:
    """Return True if a template makes the value, which is not known before it runs."""
    return isinstance(value, str) and ("{{" in value or "{%" in value)


def names_of(value: str | Iterable[str]) -> tuple[str, ...]:
    """Return names of which one may be given alone."""
    return (value,) if isinstance(value, str) else tuple(value)


def parse_age(name: str, value: object) -> timedelta | datetime | None:
    """Return the interval before now, or the moment, that an argument means; None where it is not given."""
    match value:
        case None | timedelta():
            return value
        case datetime():
            return require_offset(value)
        case str() if value[:4].isdigit() and "-" in value:
            return parse_time(value)
        case str():
            return parse_duration(value)
        case _:
            raise InvalidInputError(
                f"{name} is {value!r}. Give a timedelta, a string such as '7 days', an aware datetime or an "
                "ISO time."
            )


def parse_span(name: str, value: object) -> timedelta:
    """Return the interval that an argument means."""
    match value:
        case timedelta():
            return value
        case str():
            return parse_duration(value)
        case _:
            raise InvalidInputError(f"{name} is {value!r}. Give a timedelta or a string such as '24 hours'.")


def clauses_of(given: Clauses, action: str, *, all_columns: bool) -> Clauses:
    """Return the clauses of a kind; ``all_columns``: its short form, one clause for ``"*"``."""
    if all_columns and given:
        raise InvalidInputError(
            "update_all replaces when_matched, and insert_all replaces when_not_matched: give one of each "
            "pair."
        )
    return [{action: "*"}] if all_columns else given


def check_aliases(target: str, source: str) -> None:
    """Refuse aliases that are not plain names, or that are one name in different cases."""
    if not (_ALIAS.fullmatch(target) and _ALIAS.fullmatch(source)) or fold(target) == fold(source):
        raise InvalidInputError(
            f"target_alias={target!r} and source_alias={source!r}: give two different names of letters and "
            "digits."
        )


def check_has_clause(*clauses: Clauses) -> None:
    """Refuse a merge without clauses."""
    if not any(clauses):
        raise InvalidInputError("There is nothing to do: give update_all, insert_all or a when_… clause.")


UserDatasets: TypeAlias = Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class GivenRows:
    """Where rows come from: exactly one of ``source``, ``sql`` and ``transform``; see the insert operator."""

    source: Any = None
    sql: str | None = None
    transform: str | None = None
    sources: UserDatasets = None

    def check(self, **others: object) -> None:
        """Refuse none or several ways to give rows; ``others`` are further ones."""
        ways = {"source": self.source, "sql": self.sql, "transform": self.transform, **others}
        if sum(one is not None for one in ways.values()) != 1:
            *first, last = ways
            raise InvalidInputError(f"Give exactly one of {', '.join(first)} and {last}.")

    def resolved(self, resolve: Resolve) -> GivenSource:
        """Return the source of a job's request."""
        from ..spark.job.request import source_of

        source = None if self.source is None else resolve(self.source)
        sources = {name: resolve(item) for name, item in (self.sources or {}).items()}
        return source_of(source, self.sql, self.transform, sources)


class InsertMode(StrEnum):
    """What becomes of the rows that a table has when others are inserted."""

    APPEND = "append"
    OVERWRITE = "overwrite"
    OVERWRITE_PARTITIONS = "overwrite_partitions"


class IfEmpty(StrEnum):
    """What becomes of a write without rows."""

    REPLACE = "replace"
    SKIP = "skip"
    FAIL = "fail"

    def keeps(self, *tables: str) -> bool:
        """Return True if the lake stays as it is, since these tables get no rows.

        Raises:
            EmptySourceError: the user asked for it.
        """
        if tables and self is IfEmpty.FAIL:
            raise EmptySourceError(tables)
        return bool(tables) and self is IfEmpty.SKIP


class SchemaEvolution(StrEnum):
    """What may become of a table's columns when rows with others come in."""

    STRICT = "strict"
    ADD_COLUMNS = "add_columns"
    ADD_AND_WIDEN = "add_and_widen"


@dataclass(frozen=True, slots=True)
class InsertChoice:
    """How rows go into a table that exists; ``where`` are the rows to be replaced, as a condition."""

    mode: InsertMode = InsertMode.APPEND
    where: str | None = None
    evolution: SchemaEvolution = SchemaEvolution.STRICT
    zorder_by: tuple[str, ...] = ()
    if_empty: IfEmpty = IfEmpty.REPLACE

    @classmethod
    def of(  # noqa: PLR0913 - the operator's
        cls,
        mode: str,
        where: str | None,
        evolution: str,
        zorder_by: str | Sequence[str],
        if_empty: str = IfEmpty.REPLACE,
        *,
        stage_only: bool = False,
    ) -> InsertChoice:
        """Return the choice for an operator's arguments."""
        choice = cls(
            parse_word("mode", mode, InsertMode),
            where,
            parse_word("schema_evolution", evolution, SchemaEvolution),
            names_of(zorder_by),
            parse_word("if_empty", if_empty, IfEmpty),
        )
        choice.check(stage_only=stage_only)
        return choice

    @property
    def replaces(self) -> bool:
        """Return True if the new rows replace rows that the table has."""
        return self.mode is not InsertMode.APPEND or self.where is not None

    def check(self, *, stage_only: bool) -> None:
        """Refuse arguments that conflict with each other."""
        if self.where is not None and self.mode is InsertMode.OVERWRITE_PARTITIONS:
            raise InvalidInputError(
                "overwrite_where and mode='overwrite_partitions' both say which rows to replace: give one "
                "of them."
            )
        if stage_only and (self.replaces or self.evolution is not SchemaEvolution.STRICT):
            raise InvalidInputError(
                "stage_only=True can only append: if staged writes replaced rows or changed columns, the "
                "result would depend on their order. Leave out mode, overwrite_where and schema_evolution, "
                "or commit in this task."
            )


def check_partition_by(partition_by: str | Sequence[str], *, create_table: bool) -> None:
    """Refuse keys for a table that is not to be created."""
    if partition_by and not create_table:
        raise InvalidInputError(
            "partition_by applies only when the table is created: give create_table=True, too."
        )
