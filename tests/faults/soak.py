"""Keep players at work on a lake, kill them at drawn moments, and judge what they leave."""

import multiprocessing
import os
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Lock

from airflow_provider_ducklake.lake.catalog.lake import Lake
from tests.faults.journal import Journal
from tests.faults.model import TABLES, Model, Rows, broken, differences
from tests.faults.players import Place, Player, play
from tests.interop.jobs import merge_adjacent, rewrite
from tests.reference.postgres_proxy import ends_transaction
from tests.reference.s3_proxy import Delay, Drop, Refuse, Request, Twice

ROOT = Path(__file__).parents[2]
LAST_WORDS = 180.0  # seconds in which each open operation is settled
_NOW = timedelta(0)


@dataclass
class Weather:
    """Which faults the proxies play: drawn from a seed, counted, and none once it is calm."""

    seed: int
    is_calm: bool = False
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._draws = random.Random(f"{self.seed} weather")
        self._lock = Lock()  # a proxy has a thread for each connection

    def _draw(self, kind: str, faults: Sequence[tuple[float, str, object]]) -> object | None:
        with self._lock:
            drawn = 1.0 if self.is_calm else self._draws.random()
            for probability, name, fault in faults:
                drawn -= probability
                if drawn < 0:
                    self.counts[f"{kind}: {name}"] += 1
                    return fault
        return None

    def of_store(self, _request: Request) -> object | None:
        """Return what happens to a request to the store."""
        return self._draw(
            "store",
            (
                (0.01, "dropped", Drop()),
                (0.01, "dropped after", Drop(after=True)),
                (0.02, "twice", Twice()),
                (0.02, "late", Delay(0.2)),
                (0.01, "refused", Refuse(503, "SlowDown")),
            ),
        )

    def of_catalog(self, sent: bytes) -> object | None:
        """Return what happens to what is sent to the catalog."""
        if ends_transaction(sent):
            faults = ((0.05, "dropped", Drop()), (0.07, "dropped after", Drop(after=True)))
            return self._draw("commit", (*faults, (0.05, "late", Delay(0.3))))
        faults = ((0.002, "dropped", Drop()), (0.002, "dropped after", Drop(after=True)))
        return self._draw("catalog", (*faults, (0.01, "late", Delay(0.1))))

    def of_catalog_of_duckdb(self, sent: bytes) -> object | None:
        """Return the same, but no lost answer to a COMMIT: DuckDB then deletes files of what landed."""
        if ends_transaction(sent):
            return self._draw("commit of DuckDB", ((0.05, "dropped", Drop()), (0.05, "late", Delay(0.3))))
        return self.of_catalog(sent)


@dataclass
class Soak:
    """A lake and its players, for some seconds; ``direct`` is the lake's place past the proxies."""

    place: Place
    direct: Place
    folder: Path
    seed: int
    seconds: float
    kinds: Sequence[str]
    weather: Weather
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.folder.mkdir()
        self.until = time.monotonic() + self.seconds
        self.players = [
            Player(
                f"{kind.replace(' ', '_')}_{number}",
                number,
                kind,
                self.place,
                self.folder,
                self.seed,
                self.until,
            )
            for number, kind in enumerate(self.kinds, start=1)
        ]

    def run(self) -> list[str]:
        """Let all of it happen; return what is wrong."""
        self._play_and_kill()
        self.weather.is_calm = True
        self._settle()
        journals = [one.journal for one in self.players]
        for player, journal in zip(self.players, journals, strict=True):
            self._count(player, journal)
        wrong = [one for journal in journals for one in journal.wrong]
        wrong += disagreements(journals)
        return wrong + self._judge(Model.of(journals).rows())

    def _play_and_kill(self) -> None:
        draws = random.Random(f"{self.seed} kills")
        lives = [Life.begin(one, draws) for one in self.players]
        while time.monotonic() < self.until:
            number = draws.randrange(len(lives))
            life = lives[number]
            life.process.join(0.05)
            if life.is_up or not life.process.is_alive():
                self._end(life)
                self.players[number] = replace(life.player, lives=life.player.lives + 1)
                lives[number] = Life.begin(self.players[number], draws)
        for life in lives:
            life.process.join(max(0.0, self.until + 20 - time.monotonic()))
            self._end(life)

    def _end(self, life: "Life") -> None:
        if life.process.is_alive():
            life.process.kill()
            self.counts[f"kills of {life.player.kind}"] += 1
        life.process.join()

    def _settle(self) -> None:
        """Have what is open settled, by nobody who is killed."""
        ending = [started(replace(one, until=0.0)) for one in self.players if "maintenance" not in one.kind]
        until = time.monotonic() + LAST_WORDS
        for process in ending:
            process.join(max(0.0, until - time.monotonic()))
        for process in ending:
            process.kill()
            process.join()

    def _count(self, player: Player, journal: Journal) -> None:
        for name, count in journal.counts.items():
            self.counts[f"{name} by {player.kind}"] += count
        if journal.open is not None:
            journal.complain(f"{journal.open} of {player.name} was never settled: {journal.last_error}")

    def _judge(self, wanted: Rows) -> list[str]:
        wrong = []
        with self.direct.open() as lake:
            wrong += [f"before the last maintenance: {one}" for one in self._differences(lake, wanted)]
            wrong += [str(one) for one in lake.verify()]
            tidy_up(lake)
            wrong += [f"after the last maintenance: {one}" for one in self._differences(lake, wanted)]
            wrong += [str(one) for one in lake.verify()]
            left = lake.delete_orphaned_files(older_than=_NOW, stage_ttl=_NOW, sole_owner=True, dry_run=True)
            wrong += [f"left behind: {path}" for path in left.deleted]
        with self.direct.duckdb() as reference:
            found = {name: sorted(reference.sql(f"FROM {name}")) for name in TABLES}
            wrong += [f"by DuckDB: {one}" for one in differences(found, wanted)]
        self.counts["rows at the end"] = sum(map(len, wanted.values()))
        return wrong

    def _differences(self, lake: Lake, wanted: Rows) -> list[str]:
        found = {}
        for name, columns in TABLES.items():
            table = lake.read_arrow(name)
            found[name] = sorted(zip(*(table[one].to_pylist() for one in columns), strict=True))
        return [*broken(found), *differences(found, wanted)]


@dataclass
class Life:
    """A player's process, which is killed a moment after it has noted so much."""

    player: Player
    process: BaseProcess
    bytes: int
    seconds: float
    _since: float | None = None

    @classmethod
    def begin(cls, player: Player, draws: random.Random) -> "Life":
        noted = draws.choice((0, 10, 100, 400, 1500))
        return cls(player, started(player), player.noted_bytes + noted, draws.expovariate(2.0))

    @property
    def is_up(self) -> bool:
        if self._since is None:
            if self.player.noted_bytes > self.bytes:
                self._since = time.monotonic()
            return False
        return time.monotonic() > self._since + self.seconds


def tidy_up(lake: Lake) -> None:
    """Do the maintenance that leaves nothing to do."""
    lake.flush_inlined_data()
    for name in TABLES:
        rewrite(lake, name)
        merge_adjacent(lake, name)
    lake.expire_snapshots(keep_last=1)
    assert lake.cleanup_old_files(older_than=_NOW).failures == ()
    orphans = lake.delete_orphaned_files(older_than=_NOW, stage_ttl=_NOW, sole_owner=True)
    assert orphans.failures == ()


def disagreements(journals: Sequence[Journal]) -> Iterator[str]:
    """Yield the snapshots of which two reads, at whatever time and by whomever, saw different rows."""
    seen: dict[int, str] = {}
    for journal in journals:
        for snapshot, digest in journal.digests:
            if seen.setdefault(snapshot, digest) != digest:
                yield f"snapshot {snapshot} was read as {seen[snapshot]} and as {digest}"


def new_lake(place: Place) -> None:
    with Lake.create(place.url, place.data_path, storage_options=place.storage_options) as lake:
        with lake.transaction() as tx:
            for name, columns in TABLES.items():
                tx.create_table(name, columns)
        lake.set_option("data_inlining_row_limit", 10)


def started(player: Player) -> BaseProcess:
    process = multiprocessing.get_context("forkserver").Process(target=play, args=(player,), daemon=True)
    process.start()
    return process


@contextmanager
def nursery() -> Iterator[None]:
    """Have players begin as forks of a process that has imported all they need, and opened nothing."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), before]))
    forks = multiprocessing.get_context("forkserver")
    forks.set_forkserver_preload(["tests.faults.players", "pytest"])
    try:
        first = forks.Process(target=int)
        first.start()  # what it has to wait for, no other has
        first.join()
        yield
    finally:
        os.environ.pop("PYTHONPATH")
        if before is not None:
            os.environ["PYTHONPATH"] = before
