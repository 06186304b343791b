"""Which rows operations leave, in plain Python, and what is true of them at every snapshot."""

import hashlib
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.faults.journal import Journal, Op

TABLES = {
    "ledger": {"op": "int64", "amount": "int64"},
    "left_half": {"op": "int64", "v": "int64"},
    "right_half": {"op": "int64", "v": "int64"},
    "events": {"op": "int64", "k": "int64", "n": "int64", "size": "int64"},
}
Row = tuple[int, ...]
Rows = dict[str, list[Row]]  # of each table, in order
INSERTS = ("transfer", "pair", "few", "many")
SIZES = {"transfer": (2, 2), "pair": (1, 1), "few": (1, 4), "many": (12, 40)}


def draw(journal: Journal, draws: random.Random, kinds: Sequence[str]) -> Op:
    """Draw what a player does next: it changes only rows of its own, so one after another."""
    alive = Model.of([journal]).events
    kind = draws.choice(kinds)
    if kind in INSERTS or not alive:
        kind = kind if kind in INSERTS else "few"
        return Op(journal.next_id, kind, draws.randint(*SIZES[kind]))
    target = draws.choice(sorted(alive))
    numbers = alive[target]
    return Op(journal.next_id, kind, len(numbers), target, numbers[0])


@dataclass
class Model:
    """The rows that settled operations leave; of events the ``n`` of each row, by operation."""

    inserted: list[Op] = field(default_factory=list)
    events: dict[int, list[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, journals: Iterable[Journal]) -> "Model":
        model = cls()
        for journal in journals:
            for op in journal.ops:
                if op.id in journal.settled:
                    model.do(op)
        return model

    def do(self, op: Op) -> None:
        match op.kind:
            case "transfer" | "pair":
                self.inserted.append(op)
            case "few" | "many":
                self.events[op.id] = [0] * op.size
            case "delete":
                del self.events[op.target]
            case "update":
                self.events[op.target] = [one + 1 for one in self.events[op.target]]
            case "merge":
                numbers = self.events[op.target]
                self.events[op.target] = [100 + numbers[0], *numbers[1:]]

    def rows(self) -> Rows:
        found: Rows = {name: [] for name in TABLES}
        for op in self.inserted:
            for name, rows in rows_of(op).items():
                found[name] += rows
        for op_id, numbers in self.events.items():
            found["events"] += [(op_id, k, n, len(numbers)) for k, n in enumerate(numbers)]
        return {name: sorted(rows) for name, rows in found.items()}


def rows_of(op: Op) -> Rows:
    """Return the rows that an operation inserts, by table."""
    match op.kind:
        case "transfer":
            return {"ledger": [(op.id, op.id), (op.id, -op.id)]}
        case "pair":
            return {"left_half": [(op.id, op.id % 7)], "right_half": [(op.id, op.id % 7)]}
        case "few" | "many":
            return {"events": [(op.id, k, 0, op.size) for k in range(op.size)]}
    return {}


def broken(rows: Mapping[str, Sequence[Row]]) -> list[str]:
    """Return what cannot be of the rows of any snapshot."""
    problems = []
    sums: dict[int, int] = {}
    for op, amount in rows["ledger"]:
        sums[op] = sums.get(op, 0) + amount
    problems += [f"transfer {op} adds up to {total}" for op, total in sums.items() if total]
    if len(rows["ledger"]) != 2 * len(sums):
        problems.append(f"{len(sums)} transfers have {len(rows['ledger'])} rows")
    if sorted(rows["left_half"]) != sorted(rows["right_half"]):
        halves = set(rows["left_half"]) ^ set(rows["right_half"])
        problems.append(f"pairs that are not whole, or there twice: {sorted(halves)}")
    for name in ("left_half", "events"):
        keys = [row[: 2 if name == "events" else 1] for row in rows[name]]
        twice = sorted({one for one in keys if keys.count(one) > 1}) if len(set(keys)) < len(keys) else []
        problems += [f"{name} has {one} twice" for one in twice]
    sizes: dict[int, tuple[int, int]] = {}
    for op, _, _, size in rows["events"]:
        sizes[op] = (sizes.get(op, (0, 0))[0] + 1, size)
    problems += [
        f"op {op} has {found} of {size} rows" for op, (found, size) in sizes.items() if found != size
    ]
    return problems


def digest(rows: Mapping[str, Sequence[Row]]) -> str:
    """Return what two readers of one snapshot must agree on."""
    text = repr([(name, sorted(rows[name])) for name in TABLES])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def differences(found: Mapping[str, Sequence[Row]], wanted: Mapping[str, Sequence[Row]]) -> list[str]:
    """Return what was lost and what is too much, by table."""
    problems = []
    for name in TABLES:
        here, there = sorted(found[name]), sorted(wanted[name])
        if here != there:
            lost, more = sorted(set(there) - set(here))[:9], sorted(set(here) - set(there))[:9]
            counts = f"{len(here)} rows instead of {len(there)}"
            problems.append(f"{name}: {counts}; lost {lost}, not to be there {more}")
    return problems
