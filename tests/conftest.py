"""Options, the clock's zone and the catalogs that every test folder shares."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests import type_matrix
from tests.reference.catalogs import (
    CATALOG_KINDS,
    CatalogDatabase,
    CatalogKind,
    data_directory,
    file_catalog,
)
from tests.reference.postgres import PostgresServer, fresh_database

NewCatalog = Callable[[CatalogKind], CatalogDatabase]

_server = pytest.StashKey[PostgresServer]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("ducklake")
    group.addoption("--size", choices=["ci", "full"], default="ci", help="how much the long tests do")
    group.addoption("--seed", type=int, help="start of all random choices; default: today's UTC date")
    group.addoption("--catalog", choices=[*CATALOG_KINDS, "all"], default="all", help="databases to test")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    os.environ["TZ"] = "UTC"
    time.tzset()
    if config.option.seed is None:  # xdist hands the controller's options to its workers
        config.option.seed = int(datetime.now(UTC).strftime("%Y%m%d"))
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(config.option.seed)


def pytest_report_header(config: pytest.Config) -> str:
    return (
        f"ducklake: --seed {config.option.seed} --size {config.option.size} --catalog {config.option.catalog}"
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if table := list(type_matrix.lines(terminalreporter.stats)):
        terminalreporter.section("types: checks passed by each of our writers")
        for line in table:
            terminalreporter.write_line(line)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "catalog_kind" in metafunc.fixturenames:
        metafunc.parametrize("catalog_kind", _chosen_kinds(metafunc.config))


def _chosen_kinds(config: pytest.Config) -> tuple[CatalogKind, ...]:
    chosen = config.option.catalog
    return CATALOG_KINDS if chosen == "all" else (chosen,)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node) -> None:
    """Hand the address of the run's one server to an xdist worker about to start."""
    if "postgres" in _chosen_kinds(node.config):
        node.workerinput["postgres_port"] = _start_once(node.config).port


def _start_once(config: pytest.Config) -> PostgresServer:
    if _server not in config.stash:
        config.stash[_server] = PostgresServer()
    return config.stash[_server]


def pytest_unconfigure(config: pytest.Config) -> None:
    if _server in config.stash:
        config.stash[_server].stop()


@pytest.fixture(scope="session")
def seed(request: pytest.FixtureRequest) -> int:
    return request.config.option.seed


@pytest.fixture(scope="session")
def size(request: pytest.FixtureRequest) -> str:
    return request.config.option.size


@pytest.fixture(scope="session")
def postgres_port(request: pytest.FixtureRequest) -> int:
    if "postgres" not in _chosen_kinds(request.config):
        pytest.skip("--catalog leaves PostgreSQL out")
    worker = getattr(request.config, "workerinput", None)
    return worker["postgres_port"] if worker else _start_once(request.config).port


@pytest.fixture
def new_catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[NewCatalog]:
    """Make as many empty catalogs as a test asks for, each with a data directory of its own."""
    with ExitStack() as databases:
        count = 0

        def make(kind: CatalogKind) -> CatalogDatabase:
            nonlocal count
            count += 1
            folder = tmp_path / f"lake_{count}"
            if kind != "postgres":
                return file_catalog(kind, folder)
            port = request.getfixturevalue("postgres_port")
            location = databases.enter_context(fresh_database(port))
            return CatalogDatabase(kind, location, data_directory(folder))

        yield make


@pytest.fixture
def sqlite_catalog(new_catalog: NewCatalog) -> CatalogDatabase:
    return new_catalog("sqlite")


@pytest.fixture
def postgres_catalog(new_catalog: NewCatalog) -> CatalogDatabase:
    return new_catalog("postgres")


@pytest.fixture
def catalog(new_catalog: NewCatalog, catalog_kind: CatalogKind) -> CatalogDatabase:
    """An empty catalog of each kind that `--catalog` names."""
    return new_catalog(catalog_kind)


@pytest.fixture
def reference_catalog(new_catalog: NewCatalog, catalog_kind: CatalogKind) -> CatalogDatabase:
    """A second one of the same kind as `catalog`, for the reference to write the same history into."""
    return new_catalog(catalog_kind)
