"""Drawn histories of every kind of change leave the same catalog, written by us and by the reference.

At the end of each, tables are altered several times in one transaction. A failure names the seed and the
shortest history found that still differs.
"""

import random
from collections import Counter
from functools import partial

import pytest

from tests.differential.alterations import Alterations
from tests.differential.drawn_changes import KINDS, Changes
from tests.differential.histories import HISTORY, play
from tests.differential.twin import IGNORED, Twin

HISTORIES = {"ci": {"sqlite": 2, "postgres": 1}, "full": {"sqlite": 60, "postgres": 6}}
EACH_AT_LEAST = 30  # changes of each kind, at full size


@pytest.mark.timeout(3600)
def test_drawn_histories_leave_the_references_catalog(new_catalog, catalog_kind, seed, size, capsys):
    def new_twin() -> Twin:
        return Twin(new_catalog(catalog_kind), new_catalog(catalog_kind))

    counts: Counter[str] = Counter()
    alterations = Alterations()
    number = HISTORIES[size][catalog_kind]
    for index in range(number):
        changes = Changes(random.Random(f"{seed} {index}"), counts)
        drawn = (changes.transaction() for _ in range(HISTORY))
        play(new_twin, drawn, f"seed {seed}, history {index}", partial(alterations.carry_out, changes))

    with capsys.disabled():
        print(report(catalog_kind, seed, number * HISTORY, counts, alterations))  # noqa: T201 - what was drawn
    if size == "full" and catalog_kind == "sqlite":
        assert {name: counts[name] for name in KINDS if counts[name] < EACH_AT_LEAST} == {}


def report(kind: str, seed: int, steps: int, counts: Counter[str], alterations: Alterations) -> str:
    lines = [f"\n{kind}, seed {seed}: {steps} transactions, {counts.total()} changes:"]
    lines += [f"{count:6} {name}" for name, count in sorted(counts.items())]
    lines += [f"ignored: {name}: {reason}" for name, reason in IGNORED.items()]
    lines += [f"then {alterations.counts.total()} more, of which the same table got at once:"]
    lines += [f"{count:6} times {times}" for times, count in sorted(alterations.together.items())]
    return "\n".join(lines)
