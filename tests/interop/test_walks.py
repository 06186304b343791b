"""Lakes that DuckDB and we write in turns read alike, at every living snapshot: see walks.py."""

import random
from collections import Counter

import pytest

from tests.interop.walks import THEIRS, walk

WALKS = {"ci": 2, "full": 200}


@pytest.mark.timeout(14_400)
@pytest.mark.drawn(one_in=1)
def test_walks_read_alike_at_every_snapshot(new_catalog, seed, size, tmp_path, capsys):
    counts: Counter[str] = Counter()
    first = random.Random(seed).randrange(WALKS["full"]) if size == "ci" else 0
    for number in range(first, first + WALKS[size]):
        folder = tmp_path / str(number)
        folder.mkdir()
        one = walk(new_catalog("sqlite"), f"{seed} {number}", number, folder, counts)
        try:
            one.play()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is shown with the walk
            shown = "\n".join(one.log)
            pytest.fail(
                f'walks.py "{seed} {number}": {type(error).__name__}: {error}\n{shown}', pytrace=False
            )
    with capsys.disabled():
        print(f"\nwalks of seed {seed}:", *sorted(counts.items()), *THEIRS.values(), sep="\n")  # noqa: T201 - what was drawn
