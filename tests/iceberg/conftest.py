"""Spark with Iceberg, lakes on disk, and the function of the guide that registers their tables.

These tests run in the environment that `scripts/spark_peers.py` makes, for Iceberg has no release for the
Spark that is locked here: `make test-iceberg`, a part of `make test-full`. Making it takes minutes and Maven
Central, so that CI does without; nothing collects these tests elsewhere.
"""

import logging
import re
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.sql import SparkSession

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.spark.sessions.settings import prepare
from scripts import spark_peers
from tests.reference.catalogs import CatalogDatabase, file_catalog

GUIDE = Path(__file__).parents[2] / "docs" / "iceberg.md"
Register = Callable[[Lake, str], str]


def pytest_configure(config: pytest.Config) -> None:
    # Spark leaves the sockets by which it hands over rows to the garbage collector.
    config.addinivalue_line("filterwarnings", "ignore:unclosed <socket:ResourceWarning")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    root = tmp_path_factory.mktemp("spark")
    conf = {
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.log.level": "OFF",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.warehouse.dir": str(root / "warehouse"),
        **spark_peers.jars(spark_peers.ICEBERG),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.ice.type": "hadoop",
        "spark.sql.catalog.ice.warehouse": str(root / "iceberg"),
        "spark.sql.catalog.ice.cache-enabled": "false",
    }
    builder = SparkSession.builder
    for key, value in conf.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    prepare(session)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def guide() -> SimpleNamespace:
    """What the guide's code defines: all of its blocks but the last, which uses them."""
    blocks = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    names: dict[str, object] = {}
    for block in blocks[:-1]:
        exec(compile(block, GUIDE.name, "exec"), names)
    return SimpleNamespace(**names, last_block=blocks[-1], names=names)


@pytest.fixture
def catalog(tmp_path: Path) -> CatalogDatabase:
    return file_catalog("sqlite", tmp_path / "lake")


@pytest.fixture
def lake(catalog: CatalogDatabase) -> Iterator[Lake]:
    """A lake whose rows and deletes all go to files."""
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        lake.set_option("data_inlining_row_limit", 0)
        yield lake


_numbers = count(1)


@pytest.fixture
def register(spark: SparkSession, guide: SimpleNamespace, tmp_path: Path) -> Register:
    """Register a table as the guide does and return its name in Iceberg."""

    def run(lake: Lake, table: str) -> str:
        name = f"ice.db.t{next(_numbers)}"
        guide.register(spark, lake, table, name, f"{tmp_path}/{name}")
        return name

    return run
