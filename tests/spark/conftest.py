"""One local Spark for all tests of a process, and plans to write by."""

import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.format.partitioning import parse_partition_by
from airflow_provider_ducklake.lake.format.schema import TableSchema
from airflow_provider_ducklake.lake.planning.writing.write import ParquetSettings, WritePlan
from airflow_provider_ducklake.lake.spark.job.request import job_directory
from airflow_provider_ducklake.lake.spark.sessions import remote
from airflow_provider_ducklake.lake.spark.sessions.settings import prepare
from airflow_provider_ducklake.lake.writes.session import LakeSession
from tests.reference.connect_server import connect_server
from tests.reference.processes import FAST_JVM

NewPlan = Callable[..., WritePlan]

LOCAL_CONF = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.session.timeZone": "America/New_York",  # so that a wrong zone shows
    "spark.ui.showConsoleProgress": "false",
}


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["JDK_JAVA_OPTIONS"] = FAST_JVM
    root = tmp_path_factory.mktemp("spark")
    start = _remote if request.config.option.spark == "connect" else _classic
    with start(root) as session:
        prepare(session)
        logging.getLogger("py4j").setLevel(logging.WARNING)  # at exit it would log to what pytest has closed
        yield session


@pytest.fixture
def new_session(spark: SparkSession) -> Iterator[Callable[[], SparkSession]]:
    """Make sessions of their own, so that no test finds the settings and views of another."""
    with ExitStack() as stack:

        def make() -> SparkSession:
            if _URL not in os.environ:
                return spark.newSession()
            session = remote.create(os.environ[_URL])
            stack.callback(session.stop)
            return session

        yield make


@pytest.fixture
def own(new_session: Callable[[], SparkSession]) -> SparkSession:
    """A session of its own."""
    return new_session()


_URL = "URL_OF_THE_TESTS_CONNECT_SERVER"


@contextmanager
def _classic(root: Path) -> Iterator[SparkSession]:
    builder = SparkSession.builder.config("spark.sql.warehouse.dir", str(root / "warehouse"))
    builder = builder.config("spark.local.dir", str(root / "local"))
    for key, value in LOCAL_CONF.items():
        builder = builder.config(key, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the installed pandas is newer than pyspark knows
        session = builder.getOrCreate()
    yield session
    session.stop()


@contextmanager
def _remote(root: Path) -> Iterator[SparkSession]:
    conf = {key: value for key, value in LOCAL_CONF.items() if not key.startswith("spark.ui")}
    conf["spark.local.dir"] = str(root / "server" / "local")  # where the server has it
    with connect_server(root / "server", conf) as server, remote.remote_mode():
        os.environ[_URL] = server.url
        session = remote.create(server.url)
        yield session
        session.stop()
        del os.environ[_URL]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what a session of Spark Connect does not have, and files that start Sparks of their own."""
    if config.option.spark != "connect":
        return
    left_out = [
        item
        for item in items
        if "spark" not in getattr(item, "fixturenames", ())
        or item.get_closest_marker("classic_only") is not None
    ]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in set(left_out)]


def make_plan(
    root: Path,
    schema: TableSchema | None,
    partition_by: tuple[str, ...] = (),
    settings: ParquetSettings | None = None,
    number: int = 1,
) -> WritePlan:
    """Return a plan for a job of its own below ``root``."""
    job_id = f"0190f3c1-0000-7000-8000-{number:012d}"
    return WritePlan(
        table="main.t",
        directory=job_directory(f"{root}/lake/", job_id),
        schema=schema,
        partition_fields=parse_partition_by(partition_by, schema, "main.t") if schema is not None else (),
        partition_by=partition_by if schema is None else (),
        settings=settings or ParquetSettings(),
    )


@pytest.fixture
def new_plan(tmp_path: Path) -> NewPlan:
    """Make plans for one table, each with a directory of its own."""
    numbers = count(1)

    def make(
        schema: TableSchema | None,
        partition_by: tuple[str, ...] = (),
        settings: ParquetSettings | None = None,
    ) -> WritePlan:
        return make_plan(tmp_path, schema, partition_by, settings, next(numbers))

    return make


@pytest.fixture
def session(spark: SparkSession, lake: Lake) -> LakeSession:
    """A session on the lake of a file that has a fixture of that name."""
    return LakeSession(spark, lake)
