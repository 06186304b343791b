"""A verb that another interrupts between its plan and its commit leaves what one order of both leaves.

The first one conflicts, and nothing of it is committed; or its rows are those of a serial order. Either way
DuckDB and we read the same, and the catalog has nothing to complain about.
"""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import DuckLakeError, TransactionConflictError
from airflow_provider_ducklake.lake.format.names.identifiers import SchemaPath
from tests.concurrency.drawn_verbs import LAYOUTS, draw_statement, draw_verb
from tests.concurrency.serial_model import Order, State, in_order, order, state_of
from tests.concurrency.verbs import STATEMENTS, VERBS, Pair, PausingLake, Statement, Verb, write_given
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import DuckLakeConnection, open_lake

pytestmark = pytest.mark.both_versions(without=["mariadb"])  # where DuckDB 1.5 cannot read 1.1

KINDS = ("sqlite", "postgres", "mariadb")
PAIRS = {"ci": 10, "full": 250}  # of about 4,500; others each day
DRAWN = {"ci": 10, "full": 420}
LOOK = 25  # pairs between two looks at the catalog
Second = Verb | Statement


@dataclass
class Outcome:
    """What came of a pair: ``wrong`` says what neither order explains."""

    how: str
    why: str = ""
    wrong: list[str] = field(default_factory=list)


class Lakes:
    """One lake as its writers see it: the first, the second, and DuckDB."""

    def __init__(self, catalog: CatalogDatabase, files: Path) -> None:
        self.catalog, self.files = catalog, files
        inlines = catalog.kind != "mariadb"
        with Lake.create(catalog.sqlalchemy_url, catalog.data_path, version=catalog.spec_version) as lake:
            lake.set_option("data_inlining_row_limit", 10 if inlines else 0)
        self.first = PausingLake.connect(catalog.sqlalchemy_url)
        self.second = PausingLake.connect(catalog.sqlalchemy_url)
        self.duck = open_lake(catalog) if catalog.spec_version == "1.0" else None
        self.count = 0

    def close(self) -> None:
        self.first.close()
        self.second.close()
        if self.duck is not None:
            self.duck.close()

    @contextmanager
    def reference(self) -> Iterator[DuckLakeConnection]:
        """DuckDB, which has a lake of 1.0 open all the time, one of 1.1 while nobody else writes."""
        if self.duck is not None:
            yield self.duck
            return
        with open_lake(self.catalog) as duck:
            yield duck

    def new_pair(self, layout: Sequence[str] = ("part",)) -> Pair:
        """Make the tables that ``serial_model.BASE`` has, partitioned, by several commits."""
        self.count += 1
        schema = f"s{self.count}"
        lake = self.second
        with lake.transaction() as tx:
            tx.create_schema(schema)
            tx.create_table(f"{schema}.t", {"id": "int64", "n": "int32", "part": "varchar"}, layout)
            tx.create_table(f"{schema}.o", {"id": "int64", "n": "int32"})
            tx.append_arrow(f"{schema}.t", _rows(range(60)))
            tx.append_arrow(f"{schema}.o", _rows([*range(60, 66), 1000, 1001]).select(["id", "n"]))
        then = lake.current_snapshot().id
        with lake.transaction() as tx:
            tx.delete_rows(f"{schema}.t", "id < 36 AND part = 'a'")
            tx.append_arrow(f"{schema}.t", _rows(range(60, 90)))
        with lake.transaction() as tx:
            tx.delete_rows(f"{schema}.t", "id IN (1, 4)")
            tx.append_arrow(f"{schema}.t", _rows([102, 100, 101]))
        return Pair(schema, then, self.files)

    def carry_out(self, second: Second, pair: Pair) -> None:
        if isinstance(second, Verb):
            second.act(self.second, pair)
            return
        with self.reference() as duck:
            for statement in second.text.replace("{s}", pair.schema).split(";"):
                duck.sql(statement)

    def head(self) -> int:
        return self.second.current_snapshot().id

    def state(self, schema: str) -> State:
        """Return the tables as DuckDB reads them."""
        with self.reference() as duck:
            return state_of(duck.raw, schema)

    def read_by_us(self, schema: str) -> dict[str, object]:
        names = [one.name for one in self.first.tables() if one.schema == SchemaPath.of(schema)]
        return {name: _as_rows(self.first.read_arrow(f"{schema}.{name}")) for name in names}


def _rows(numbers: Sequence[int]) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "n": pa.array(numbers, pa.int32()),
            "part": [chr(97 + one % 3) for one in numbers],
        }
    )


def _as_rows(rows: pa.Table) -> tuple[tuple[object, ...], ...]:
    return in_order([tuple(row.values()) for row in rows.to_pylist()])


def run_pair(lakes: Lakes, first: Verb, second: Second, layout: Sequence[str] = ("part",)) -> Outcome:
    """Let the second happen between plan and commit of the first, and judge what is left."""
    pair, heads = lakes.new_pair(layout), list[int]()
    second_model = second.models if isinstance(second, Statement) else second.model

    def meanwhile() -> None:
        lakes.carry_out(second, pair)
        heads.append(lakes.head())

    lakes.first.meanwhile = meanwhile
    behind = order(f"{second.name}, then {first.name}", [second_model, first.model])
    before = order(f"{first.name}, then {second.name}", [first.model, second_model])
    alone = order(f"{second.name} alone", [second_model])
    try:
        first.act(lakes.first, pair)
    except DuckLakeError as error:
        is_conflict = isinstance(error, TransactionConflictError)
        outcome = Outcome("conflict" if is_conflict else "refused")
        if lakes.head() != heads[0]:
            outcome.wrong.append(f"{error!r} left a snapshot behind")
        if is_conflict:
            again(lakes, first, pair, outcome)
        if "refused" in outcome.how and behind.state is not None:
            outcome.wrong.append(f"refused: {outcome.why or error!r}")
        judge(outcome, lakes, pair, [alone if behind.state is None else behind])
        return outcome
    if not heads:  # it had nothing to commit
        lakes.first.meanwhile = None
        meanwhile()
    outcome = Outcome("committed")
    judge(outcome, lakes, pair, [behind, before])
    return outcome


def again(lakes: Lakes, first: Verb, pair: Pair, outcome: Outcome) -> None:
    """Plan the first again, as the retry of a task does."""
    try:
        first.act(lakes.first, pair)
    except (DuckLakeError, duckdb.Error, pa.ArrowInvalid) as error:
        outcome.how = "conflict, then refused"
        outcome.why = repr(error)


def judge(outcome: Outcome, lakes: Lakes, pair: Pair, orders: list[Order]) -> None:
    """Compare what both readers see with what the orders leave."""
    found = lakes.state(pair.schema)
    if all(found != one.state for one in orders):
        outcome.wrong.append("\n".join([f"found {found}", *(f"{one.name}: {one.state}" for one in orders)]))
    ours = lakes.read_by_us(pair.schema)
    if ours != {name: rows for name, (_, rows) in found.items()}:
        outcome.wrong.append(f"we read {ours}, DuckDB {found}")


@pytest.fixture(params=KINDS)
def lakes(request, new_catalog, tmp_path) -> Iterator[Lakes]:
    files = tmp_path / "given"
    files.mkdir()
    write_given(files)
    catalog = new_catalog(request.param)
    lakes = Lakes(catalog, files)
    yield lakes
    lakes.close()


def all_pairs(kind: str) -> list[tuple[Verb, Second]]:
    """List the pairs; through MariaDB DuckDB cannot write."""
    seconds: list[Second] = [*VERBS, *(() if kind == "mariadb" else STATEMENTS)]
    return [(first, second) for first in VERBS for second in seconds]


@pytest.mark.timeout(14_400)
def test_two_verbs_at_once_leave_what_one_order_of_them_leaves(lakes, seed, size, capsys):
    kind = lakes.catalog.kind
    pairs = all_pairs(kind)
    random.Random(f"{seed} {kind}").shuffle(pairs)
    check_pairs(lakes, [(*pair, ("part",)) for pair in pairs[: PAIRS[size]]], capsys)


@pytest.mark.timeout(14_400)
def test_two_drawn_verbs_at_once_leave_what_one_order_of_them_leaves(lakes, seed, size, capsys):
    kind = lakes.catalog.kind
    draw = random.Random(f"{seed} {kind} drawn")
    check_pairs(lakes, [drawn_pair(draw, kind) for _ in range(DRAWN[size])], capsys)


def drawn_pair(draw: random.Random, kind: str) -> tuple[Verb, Second, Sequence[str]]:
    """Draw a verb, what interrupts it, and by what their table is partitioned."""
    layout = draw.choice(LAYOUTS)
    first = draw_verb(draw, layout)
    is_ours = kind == "mariadb" or draw.random() < 0.4
    return first, draw_verb(draw, layout) if is_ours else draw_statement(draw), layout


def check_pairs(
    lakes: Lakes, pairs: Sequence[tuple[Verb, Second, Sequence[str]]], capsys: pytest.CaptureFixture[str]
) -> None:
    """Run pairs, and look at the catalog from time to time."""
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    for number, (first, second, layout) in enumerate(pairs, start=1):
        try:
            outcome = run_pair(lakes, first, second, layout)
        except Exception as error:  # noqa: BLE001 - whatever it is, the pair is wrong
            lakes.first.meanwhile = None
            outcome = Outcome("error", wrong=[repr(error)])
        counts[outcome.how] += 1
        wrong += [f"({first.name!r}, {second.name!r}) {outcome.how}: {one}" for one in outcome.wrong]
        if number % LOOK == 0 or number == len(pairs):
            wrong += [f"until ({first.name}, {second.name}): {one}" for one in lakes.first.verify()]

    with capsys.disabled():
        print(f"\n{lakes.catalog.kind}: {counts.total()} pairs of concurrent verbs, {dict(counts)}")  # noqa: T201 - the count
    assert not wrong, "\n\n".join(wrong)
