"""Mixed writers, readers and maintenance on a lake whose network breaks, and whose clients are killed.

Nothing is lost and nothing is there twice: what each player says it did decides.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.faults.players import WRITERS, Place
from tests.faults.soak import ROOT, Soak, Weather, new_lake, nursery
from tests.reference import s3
from tests.reference.connect_server import connect_server
from tests.reference.postgres_proxy import postgres_proxy
from tests.reference.s3_proxy import proxy

SECONDS = {"servers": {"ci": 20, "full": 780}, "files": {"ci": 10, "full": 360}}
PLAYERS = {
    "ci": ("ours", "operators", "duckdb", "reader", "duckdb reader", "maintenance"),
    "full": (
        *("ours", "ours", "operators", "connected operators", "duckdb", "reader", "duckdb reader"),
        *("maintenance", "duckdb maintenance"),
    ),
}
BUCKET = "soak"
WITH_S3 = {
    "spark.jars.packages": s3.PACKAGES,
    "spark.jars.excludes": "software.amazon.awssdk:bundle",
    "spark.jars.ivy": str(ROOT / "build" / "ivy"),
}


@pytest.fixture(scope="module", autouse=True)
def _nursery() -> Iterator[None]:
    with nursery():
        yield


@contextmanager
def spark_server(folder: Path, size: str, conf: Mapping[str, str] | None = None) -> Iterator[int | None]:
    """Start what the connected operators need, and yield its port; None where there are none."""
    if "connected operators" not in PLAYERS[size]:
        yield None
        return
    with connect_server(folder / "spark", conf) as server:
        yield server.port


def judged(soak: Soak, name: str, capsys) -> None:
    started = time.monotonic()
    wrong = soak.run()
    lines = sorted((soak.counts + soak.weather.counts).items())
    with capsys.disabled():
        print(f"\n{name}, seed {soak.seed}: {time.monotonic() - started:.0f} s")  # noqa: T201 - what was drawn
        print("\n".join(f"  {count:>7,} {what}" for what, count in lines))  # noqa: T201
    assert wrong == [], "\n".join(wrong)
    for kind in WRITERS.keys() & set(soak.kinds):
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
        spark_port = stack.enter_context(spark_server(tmp_path, size, WITH_S3))
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
                spark_port,
            )

        direct = place(store, server["port"], server["port"])
        new_lake(direct)
        soak = Soak(
            place(endpoint, ours, theirs),
            direct,
            tmp_path / "players",
            seed,
            SECONDS["servers"][size],
            PLAYERS[size],
            weather,
        )
        judged(soak, "servers", capsys)


@pytest.mark.timeout(3600)
def test_nothing_is_lost_or_twice_in_files(sqlite_catalog, tmp_path, seed, size, capsys):
    with spark_server(tmp_path, size) as spark_port:
        place = Place(
            sqlite_catalog.sqlalchemy_url,
            sqlite_catalog.attach_string,
            sqlite_catalog.data_path,
            spark_port=spark_port,
        )
        new_lake(place)
        seconds = SECONDS["files"][size]
        soak = Soak(place, place, tmp_path / "players", seed, seconds, PLAYERS[size], Weather(seed))
        judged(soak, "files", capsys)
