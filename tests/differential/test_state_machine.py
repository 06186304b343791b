"""Drawn histories of every kind of change leave the same catalog, written by us and by the reference.

A failure names the seed and the shortest history found that still differs.
"""

import random
import re
from collections import Counter
from collections.abc import Callable

import pytest

from tests.differential.drawn_changes import KINDS, Change, Changes
from tests.differential.twin import IGNORED, Twin

HISTORY = 60  # transactions in one lake
HISTORIES = {"ci": {"sqlite": 5, "postgres": 1}, "full": {"sqlite": 60, "postgres": 6}}
EACH_AT_LEAST = 30  # changes of each kind, at full size

Transaction = list[Change]
NewTwin = Callable[[], Twin]


def carry_out(twin: Twin, changes: Transaction) -> None:
    """Do the same in both lakes; ours first, since it may look up rows that both still have."""
    (first, *_) = changes
    if first.is_option:
        first.ours(twin)
    else:
        with twin.lake.transaction() as twin.tx:
            for change in changes:
                change.ours(twin)
    texts = [text for change in changes for text in change.sql]
    together = ["BEGIN", *texts, "COMMIT"] if len(texts) > 1 else texts
    for text in together:
        twin.reference.sql(text)


def failure(twin: Twin, changes: Transaction) -> Exception | None:
    """Carry a transaction out and return what is wrong then."""
    try:
        carry_out(twin, changes)
        if differences := twin.differences():
            raise AssertionError("\n".join(["catalogs differ (ours | theirs):", *differences]))  # noqa: TRY301
    except Exception as error:  # noqa: BLE001 - whatever it is, it is shown with the history
        return error
    return None


def start(twin: Twin) -> None:
    """Keep rows in the order in which they are inserted, which we do; the reference sorts by the keys."""
    twin.lake.set_option("sort_on_insert", value=False)
    twin.reference.sql("CALL lake.set_option('sort_on_insert', false)")


def run(new_twin: NewTwin, history: list[Transaction]) -> Exception | None:
    """Return what is wrong after a history's last transaction; None if it fails before it, or not at all."""
    with new_twin() as twin:
        start(twin)
        for changes in history[:-1]:
            if failure(twin, changes) is not None:
                return None
        return failure(twin, history[-1])


def shortest(new_twin: NewTwin, history: list[Transaction], found: Exception) -> list[Transaction]:
    """Leave out transactions, many at a time, then fewer, then changes, while it fails as before."""

    def fails(candidate: list[Transaction]) -> bool:
        return _essence(run(new_twin, candidate)) == _essence(found)

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


@pytest.mark.timeout(3600)
def test_drawn_histories_leave_the_references_catalog(new_catalog, catalog_kind, seed, size, capsys):
    def new_twin() -> Twin:
        return Twin(new_catalog(catalog_kind), new_catalog(catalog_kind))

    counts: Counter[str] = Counter()
    number = HISTORIES[size][catalog_kind]
    for index in range(number):
        play(new_twin, Changes(random.Random(f"{seed} {index}"), counts), f"seed {seed}, history {index}")

    with capsys.disabled():
        print(report(catalog_kind, seed, number * HISTORY, counts))  # noqa: T201 - what was drawn
    if size == "full" and catalog_kind == "sqlite":
        assert {name: counts[name] for name in KINDS if counts[name] < EACH_AT_LEAST} == {}


def play(new_twin: NewTwin, changes: Changes, where: str) -> None:
    history: list[Transaction] = []
    with new_twin() as twin:
        start(twin)
        for _ in range(HISTORY):
            history.append(changes.transaction())
            if error := failure(twin, history[-1]):
                break
        else:
            return
    minimal = shown(shortest(new_twin, history, error))
    pytest.fail(f"{where}, after {len(history)} transactions: {error}\n{minimal}", pytrace=False)


def report(kind: str, seed: int, steps: int, counts: Counter[str]) -> str:
    lines = [f"\n{kind}, seed {seed}: {steps} transactions, {counts.total()} changes:"]
    lines += [f"{count:6} {name}" for name, count in sorted(counts.items())]
    lines += [f"ignored: {name}: {reason}" for name, reason in IGNORED.items()]
    return "\n".join(lines)
