"""Histories of drawn changes, carried out in two lakes that should stay the same."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, Self

import pytest

from tests.differential.drawn_changes import Change

HISTORY = 60  # transactions in one lake

Transaction = list[Change]


class Lakes(Protocol):
    """Two lakes, open."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def carry_out(self, changes: Sequence[Change]) -> None:
        """Make one transaction of changes in both lakes."""

    def differences(self) -> list[str]:
        """Return how the two catalogs differ, a line each."""


NewLakes = Callable[[], Lakes]


def failure(lakes: Lakes, changes: Transaction) -> Exception | None:
    """Carry a transaction out and return what is wrong then."""
    try:
        lakes.carry_out(changes)
        if differences := lakes.differences():
            raise AssertionError("\n".join(["catalogs differ (ours | theirs):", *differences]))  # noqa: TRY301
    except Exception as error:  # noqa: BLE001 - whatever it is, it is shown with the history
        return error
    return None


def run(new_lakes: NewLakes, history: list[Transaction]) -> Exception | None:
    """Return what is wrong after a history's last transaction; None if it fails before it, or not at all."""
    with new_lakes() as lakes:
        for changes in history[:-1]:
            if failure(lakes, changes) is not None:
                return None
        return failure(lakes, history[-1])


def shortest(new_lakes: NewLakes, history: list[Transaction], found: Exception) -> list[Transaction]:
    """Leave out transactions, many at a time, then fewer, then changes, while it fails as before."""

    def fails(candidate: list[Transaction]) -> bool:
        return _essence(run(new_lakes, candidate)) == _essence(found)

    size = len(history) // 2
    while size:
        place = 0
        while place < len(history) - 1:
            candidate = history[:place] + history[min(place + size, len(history) - 1) :]
            if fails(candidate):
                history = candidate
            else:
                place += size
        size //= 2
    for place, changes in enumerate(history):
        for change in changes:
            less = [one for one in changes if one is not change]
            candidate = [*history[:place], less, *history[place + 1 :]]
            if less and fails(candidate):
                history = candidate
    return history


def _essence(error: Exception | None) -> str:
    """Return the kind of error, and of the first difference the table and column."""
    lines = f"{type(error)} {error}".splitlines()[:2]
    return " ".join(re.sub(r"[0-9]|: [^:]* [|] .*", "", line) for line in lines)[:120]


def shown(history: list[Transaction]) -> str:
    return "\n".join(
        f"-- {', '.join(change.kind for change in changes)}\n"
        + ";\n".join(text for change in changes for text in change.sql)
        for changes in history
    )


def play(
    new_lakes: NewLakes,
    drawn: Iterable[Transaction],
    where: str,
    look: Callable[[Lakes], None],
    every: int = HISTORY,
) -> None:
    """Carry a history out while the catalogs agree; fail with the shortest. ``look`` is called in between."""
    history: list[Transaction] = []
    with new_lakes() as lakes:
        for changes in drawn:
            history.append(changes)
            if error := failure(lakes, changes):
                break
            if len(history) % every == 0:
                look(lakes)
        else:
            return
    minimal = shown(shortest(new_lakes, history, error))
    pytest.fail(f"{where}, after {len(history)} transactions: {error}\n{minimal}", pytrace=False)
