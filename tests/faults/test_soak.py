"""Mixed writers, readers and maintenance on a lake whose network breaks, and whose clients are killed.

Nothing is lost and nothing is there twice: what each player says it did decides.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.faults.players import Place
from tests.faults.soak import Soak, Weather, new_lake, nursery
from tests.reference import s3
from tests.reference.postgres_proxy import postgres_proxy
from tests.reference.s3_proxy import proxy

SECONDS = {"servers": {"ci": 20, "full": 780}, "files": {"ci": 10, "full": 360}}
WRITERS = ("ours", "operators", "duckdb")
OTHERS = ("reader", "duckdb reader", "maintenance")
BUCKET = "soak"


@pytest.fixture(scope="module", autouse=True)
def _nursery() -> Iterator[None]:
    with nursery():
        yield


def judged(soak: Soak, name: str, capsys) -> None:
    started = time.monotonic()
    wrong = soak.run()
    lines = sorted((soak.counts + soak.weather.counts).items())
    with capsys.disabled():
        print(f"\n{name}, seed {soak.seed}: {time.monotonic() - started:.0f} s")  # noqa: T201 - what was drawn
        print("\n".join(f"  {count:>7,} {what}" for what, count in lines))  # noqa: T201
    assert wrong == [], "\n".join(wrong)
    for kind in WRITERS:
        assert sum(
            count
            for what, count in soak.counts.items()
            if what.endswith(f" by {kind}") and what.startswith(("commits", "found done"))
        )
    assert sum(count for what, count in soak.counts.items() if what.startswith("reads of snapshots"))


@pytest.mark.timeout(3600)
def test_nothing_is_lost_or_twice_on_servers_behind_a_bad_network(
    postgres_catalog, tmp_path, seed, size, capsys
):
    weather = Weather(seed)
    with ExitStack() as stack:
        store = stack.enter_context(s3.bucket(BUCKET))
        endpoint = stack.enter_context(proxy(store, weather.of_store))
        server = postgres_catalog.server
        ours, theirs = (
            stack.enter_context(postgres_proxy(int(server["port"]), fault))
            for fault in (weather.of_catalog, weather.of_catalog_of_duckdb)
        )

        def place(endpoint: str, ours: object, theirs: object) -> Place:
            return Place(
                postgres_catalog.sqlalchemy_url.replace(f"port={server['port']}", f"port={ours}"),
                postgres_catalog.attach_string.replace(f"port={server['port']}", f"port={theirs}"),
                f"s3://{BUCKET}/lake/",
                s3.storage_options(endpoint, "fsspec", None),
                postgres_catalog.location,
            )

        direct = place(store, server["port"], server["port"])
        new_lake(direct)
        soak = Soak(
            place(endpoint, ours, theirs),
            direct,
            tmp_path / "players",
            seed,
            SECONDS["servers"][size],
            [*WRITERS, *OTHERS] if size == "ci" else [*WRITERS, "ours", *OTHERS],
            weather,
        )
        judged(soak, "servers", capsys)


@pytest.mark.timeout(3600)
def test_nothing_is_lost_or_twice_in_files(sqlite_catalog, tmp_path, seed, size, capsys):
    place = Place(sqlite_catalog.sqlalchemy_url, sqlite_catalog.attach_string, sqlite_catalog.data_path)
    new_lake(place)
    soak = Soak(
        place, place, tmp_path / "players", seed, SECONDS["files"][size], [*WRITERS, *OTHERS], Weather(seed)
    )
    judged(soak, "files", capsys)
