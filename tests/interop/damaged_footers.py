"""A process that reads files with damaged footers: pyarrow's accessors end it where they cannot raise.

Run as ``python -m tests.interop.damaged_footers AREA SEED FIRST LAST``: it writes each case before the verbs
run, and what came of each. ``outcomes`` starts it, again after each case that ended it.
"""

import copy
import random
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.storage.parquet.modules import (
    Items,
    ModuleKind,
    ThriftField,
    write_struct,
)
from tests.interop.footers import footer_of, with_footer
from tests.interop.odd import Verb, outcome_in

NUMBERS = (0, -1, 1, 2, 3, 5, 8, 9, 20, 127, 2**31 - 1, -(2**31), 2**62, -(2**63))


def places(value: Any, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Return each field and each item of a struct, as what holds it and by which key."""
    if isinstance(value, dict):
        for key, one in value.items():
            found.append((value, key))
            places(one.value, found)
    elif isinstance(value, Items):
        found.append((value, None))
        for key, one in enumerate(value.values):
            found.append((value.values, key))
            places(one, found)
    return found


def changed_items(values: list[Any], draw: random.Random) -> None:
    place = draw.randrange(len(values)) if values else 0
    match draw.randrange(4):
        case 0:
            del values[place : place + 1]
        case 1:
            values.extend(copy.deepcopy(values[place : place + 1]))
        case 2:
            values.clear()
        case _:
            values.reverse()


def changed_value(value: Any, draw: random.Random) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return draw.choice((*NUMBERS, value + 1, value - 1))
    if isinstance(value, bytes):
        return draw.choice((b"", b"\0", value[:-1], value + b"\xff", draw.randbytes(9)))
    return value


def changed(footer: dict[int, ThriftField], draw: random.Random) -> bytes:
    """Return a footer that says something else in up to three places."""
    footer = copy.deepcopy(footer)
    for _ in range(draw.choice((1, 1, 2, 3))):
        holder, key = draw.choice(places(footer, []))
        if key is None:
            changed_items(holder.values, draw)
        elif isinstance(holder, list):
            holder[key] = changed_value(holder[key], draw)
        elif draw.random() < 0.2:
            del holder[key]
        elif draw.random() < 0.1:
            holder[draw.randrange(1, 20)] = copy.deepcopy(holder[key])
        else:
            one = holder[key]
            one.value = changed_value(one.value, draw)
            if one.kind is ModuleKind.DOUBLE:
                one.value = one.value[:8].ljust(8, b"\0")
            elif one.kind is ModuleKind.BYTE:
                one.value &= 0xFF
    return write_struct(footer)


def flipped(footer: bytes, draw: random.Random) -> bytes:
    """Return a footer with other bytes, or some more or less."""
    found = bytearray(footer)
    for _ in range(draw.choice((1, 1, 2, 4))):
        place = draw.randrange(len(found))
        found[place : place + draw.choice((0, 1, 1, 1, 4))] = draw.randbytes(draw.choice((0, 1, 1, 4)))
    return bytes(found)


def damaged(data: bytes, draw: random.Random) -> bytes:
    body, footer = footer_of(data)
    if draw.random() < 0.7:
        try:
            return with_footer(body, changed(footer, draw))
        except (AttributeError, TypeError, ValueError):  # what no Thrift can say
            pass
    return with_footer(body, flipped(write_struct(footer), draw))


class Undone(Exception):  # noqa: N818 - it is none
    """Ends a transaction that must not be committed."""


def adding(table: str, path: Path) -> Verb:
    def add(lake: Lake) -> None:
        with suppress(Undone), lake.transaction() as tx:
            tx.add_data_files(table, [str(path)], ignore_extra_columns=True, allow_missing=True)
            raise Undone

    return add


def say(*words: str) -> None:
    """Write a line that is read even if the process ends right after it."""
    sys.stdout.write(" ".join(words) + "\n")
    sys.stdout.flush()


def main(area: Path, seed: str, first: int, last: int) -> None:
    """Run the cases; ``area`` has a catalog, and a file for each table, of that name."""
    given = area / "given.parquet"
    with Lake.connect(f"sqlite:///{area}/catalog.sqlite") as lake:
        tables = {path.stem: path.read_bytes() for path in sorted((area / "whole").iterdir())}
        for case in range(first, last):
            say("case", str(case))
            draw = random.Random(f"{seed} {case}")
            table = draw.choice(sorted(tables))
            found = damaged(tables[table], draw)
            given.write_bytes(found)
            (area / "files" / f"{table}.parquet").write_bytes(found)
            verbs: dict[str, Verb] = {
                "add": adding(table, given),
                "read": lambda lake, table=table: lake.read_arrow(table),
                "verify": lambda lake: lake.verify(),
            }
            for name, verb in verbs.items():
                say("outcome", name, outcome_in(lake, verb))
            (area / "files" / f"{table}.parquet").write_bytes(tables[table])


def outcomes(area: Path, seed: object, count: int) -> Counter[str]:
    """Return how often each outcome came; those to look at begin with "!" and name the case."""
    seen: Counter[str] = Counter()
    first = 0
    while first < count:
        arguments = [str(area), str(seed), str(first), str(count)]
        command = [sys.executable, "-m", "tests.interop.damaged_footers", *arguments]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = [line.split(" ", 2) for line in ended.stdout.splitlines()]
        cases = [int(line[1]) for line in lines if line[0] == "case"]
        for line in lines:
            if line[0] == "case":
                first = int(line[1])
            else:
                said = line[2]
                seen[f"{said}, {line[1]}, case {first}" if said[0] == "!" else said] += 1
        if ended.returncode:
            seen[f"! ended by {ended.returncode} in case {first}: {ended.stderr[-300:]}"] += 1
        if not cases:
            break
        first += 1
    return seen


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
