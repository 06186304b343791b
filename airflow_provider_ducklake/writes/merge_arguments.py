"""What can be known to be wrong with a merge's arguments when its DAG is read. Imports nothing heavy."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from airflow_provider_ducklake.errors import InvalidInputError
from airflow_provider_ducklake.spec.names.identifiers import fold

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, TypeAlias

    Clauses: TypeAlias = Sequence[Mapping[str, Any]]

TARGET_ALIAS = "target"
SOURCE_ALIAS = "source"
_ALIAS = re.compile(r"[^\W\d]\w*")


def clauses_of(given: Clauses, action: str, *, all_columns: bool) -> Clauses:
    """Return the clauses of a kind; ``all_columns``: its short form, one clause for ``"*"``.

    Raises:
        InvalidInputError: both are given.
    """
    if all_columns and given:
        raise InvalidInputError(
            "update_all stands for when_matched, insert_all for when_not_matched: give one of each."
        )
    return [{action: "*"}] if all_columns else given


def check_aliases(target: str, source: str) -> None:
    """Refuse names that a text could not tell apart.

    Raises:
        InvalidInputError: says which names may be given.
    """
    if not (_ALIAS.fullmatch(target) and _ALIAS.fullmatch(source)) or fold(target) == fold(source):
        raise InvalidInputError(
            f"target_alias={target!r} and source_alias={source!r}: give two different names of letters and "
            "digits."
        )


def check_has_clause(*clauses: Clauses) -> None:
    """Refuse a merge without clauses.

    Raises:
        InvalidInputError: there are none.
    """
    if not any(clauses):
        raise InvalidInputError("Nothing is to be done: give update_all, insert_all or a when_… clause.")
