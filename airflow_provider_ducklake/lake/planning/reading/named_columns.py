"""Which columns texts of SQL may name: never too few, though perhaps too many."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.spec.names.identifiers import fold

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_STAR = re.compile(r"(?:\A|[(,.])\s*\*")  # not that of a product, which has a factor before it
_WORD = re.compile(r"\w+")


def named_columns(texts: Iterable[str], names: Sequence[str]) -> tuple[str, ...]:
    """Return those of ``names`` that occur in the texts, in their order; a star names them all.

    >>> named_columns(["price * 2 > `unit price`"], ["id", "price", "unit price", "unit"])
    ('price', 'unit price', 'unit')
    >>> named_columns(["hash(*) > 0"], ["id", "price"])
    ('id', 'price')
    """
    whole = "\n".join(texts)
    if _STAR.search(whole):
        return tuple(names)
    folded = fold(whole).replace("``", "`")
    words = set(_WORD.findall(folded))
    return tuple(
        name for name in names if (fold(name) in words if _WORD.fullmatch(name) else fold(name) in folded)
    )
