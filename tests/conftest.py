"""Options, the clock's zone and the catalogs that every test folder shares."""

import argparse
import gc
import importlib.metadata
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests import corpus_summary, lanes, mistakes_summary, type_matrix
from tests.reference import mariadb, mysql, postgres, third_reader
from tests.reference.as_1_0 import as_1_0
from tests.reference.catalogs import (
    CATALOG_KINDS,
    USUAL_KINDS,
    CatalogDatabase,
    CatalogKind,
    data_directory,
    file_catalog,
)
from tests.reference.lent import version_of
from tests.seeds import SEED, default_seed, draws

collect_ignore = ["iceberg"]  # it runs in an environment of its own: make test-iceberg

NewCatalog = Callable[..., CatalogDatabase]  # of a kind, and a version of its lakes
Server = postgres.PostgresServer | mariadb.MariaDbServer | mysql.MySqlServer

SPEC_VERSIONS = ("1.0", "1.1")
ONE_IN = 8  # tests that run at 1.1 too, at CI's size

_SERVERS = {"postgres": postgres.PostgresServer, "mariadb": mariadb.MariaDbServer}
_FRESH = {"postgres": postgres.fresh_database, "mariadb": mariadb.fresh_database}
_servers = pytest.StashKey[dict[str, Server]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("ducklake")
    group.addoption("--size", choices=["ci", "full"], default="ci", help="how much the long tests do")
    group.addoption(
        "--seed",
        type=int,
        help=f"start of all random choices; default: {SEED}, in CI and at full size the UTC date",
    )
    group.addoption(
        "--spec-version",
        choices=[*SPEC_VERSIONS, "all", "drawn"],
        help="lakes of tests that run at both versions; default: at 1.0, and one in "
        f"{ONE_IN}, by the seed, at 1.1 too; at full size all",
    )
    group.addoption(
        "--lane",
        default=lanes.DAY,
        help=f"whole lanes: {', '.join(lanes.MARKS)}, all; default: the day's part of the first two",
    )
    group.addoption(
        "--spark",
        choices=["classic", "connect"],
        default="classic",
        help="sessions of tests/spark: with a JVM beside them, or of a Spark Connect server",
    )
    group.addoption(
        "--catalog",
        choices=[*CATALOG_KINDS, "mysql", "all"],
        default="all",
        help="databases to test; mysql: tests of MariaDB, on a server of MySQL (scripts/mysql)",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "both_versions(without): run with lakes of 1.0 and, but in some databases, of 1.1"
    )
    config.addinivalue_line("markers", "only_1_0(reason): run with lakes of 1.0, whatever the file does")
    config.addinivalue_line("markers", "drawn(one_in): run on one of so many days only")
    config.addinivalue_line("markers", "classic_only(reason): needs a session with a JVM beside it")
    config.addinivalue_line(
        "markers", "every_catalog(**lanes): run over all kinds of catalogs, not the usual two, in those lanes"
    )
    for name in lanes.MARKS:
        config.addinivalue_line("markers", f"{name}: {lanes.LANES[name].protects}")
    os.environ["TZ"] = "UTC"
    time.tzset()
    if config.option.seed is None:  # xdist hands the controller's options to its workers
        config.option.seed = default_seed(os.environ, config.option.size, datetime.now(UTC).date())
    if config.option.spec_version is None:
        config.option.spec_version = "all" if config.option.size == "full" else "drawn"
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(config.option.seed)
    if config.option.size == "full" and config.option.timeout is None:
        config.option.timeout = 14_400  # seconds, for a test that says nothing itself


def pytest_collection_finish() -> None:
    """Keep all that was imported out of later collections of garbage, which many tests ask for."""
    gc.collect()
    gc.freeze()


def pytest_report_header(config: pytest.Config) -> str:
    chosen = f"--seed {config.option.seed} --size {config.option.size} --catalog {config.option.catalog}"
    return f"ducklake: {chosen}, reference {importlib.metadata.version('duckdb-extension-ducklake')}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if table := list(type_matrix.lines(terminalreporter.stats)):
        terminalreporter.section("types: checks passed by each of our writers")
        for line in table:
            terminalreporter.write_line(line)
    if counts := list(corpus_summary.lines(terminalreporter.stats)):
        terminalreporter.section("corpus: read as the reference reads it")
        for line in counts:
            terminalreporter.write_line(line)
    if answers := list(mistakes_summary.lines(terminalreporter.stats)):
        terminalreporter.section("mistakes: the answer to each")
        for line in answers:
            terminalreporter.write_line(line)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "catalog_kind" in metafunc.fixturenames:
        everywhere = metafunc.definition.get_closest_marker("every_catalog")
        lane_of = {kind: "databases" for kind in CATALOG_KINDS if kind not in USUAL_KINDS}
        lane_of |= everywhere.kwargs if everywhere else {}
        kinds = [
            pytest.param(kind, marks=getattr(pytest.mark, lane_of[kind]) if kind in lane_of else ())
            for kind in _chosen_kinds(metafunc.config)
            if everywhere or kind in USUAL_KINDS
        ]
        metafunc.parametrize("catalog_kind", kinds)

    if "spec_version" in metafunc.fixturenames and _is_for_both(metafunc.definition):
        metafunc.parametrize("spec_version", SPEC_VERSIONS)


def _is_for_both(item: pytest.Item) -> bool:
    return bool(item.get_closest_marker("both_versions")) and item.get_closest_marker("only_1_0") is None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    option = config.option
    try:
        of_run = lanes.lanes_of_run(option)
        lane_of = {item: lanes.lane_of(item) for item in items}
    except lanes.NoLaneError as error:
        raise pytest.UsageError(str(error)) from None
    chosen = [
        item
        for item in items
        if _is_chosen(item, option.spec_version, option.seed)
        and (_was_asked_for(item, option) or (lane_of[item] in of_run and _is_drawn(item, option)))
    ]
    if len(chosen) < len(items):
        config.hook.pytest_deselected(items=list(set(items) - set(chosen)))
    items[:] = sorted(chosen, key=lambda item: lanes.place_of(item.nodeid))


def _was_asked_for(item: pytest.Item, option: argparse.Namespace) -> bool:
    return any(item.path.name in one for one in option.file_or_dir)


def _is_drawn(item: pytest.Item, option: argparse.Namespace) -> bool:
    """Whether a test is one of the day's; whoever names a lane runs all of it."""
    if option.size == "full" or option.lane != lanes.DAY:
        return True
    marker = item.get_closest_marker("drawn")
    one_in = marker.kwargs["one_in"] if marker else lanes.DRAWN.get(lanes.folder_of(item), 1)
    return draws(option.seed, item.nodeid, one_in)


def _is_chosen(item: pytest.Item, chosen: str, seed: int) -> bool:
    callspec = getattr(item, "callspec", None)
    version = callspec and callspec.params.get("spec_version")
    if version is None:
        return True
    without = item.get_closest_marker("both_versions").kwargs.get("without", ())
    if version == "1.1" and set(without) & set(map(str, callspec.params.values())):
        return False
    if chosen in ("all", version):
        return True
    return chosen == "drawn" and (version == "1.0" or draws(seed, item.nodeid, ONE_IN))


def _chosen_kinds(config: pytest.Config) -> tuple[CatalogKind, ...]:
    chosen = config.option.catalog
    if chosen == "mysql":
        return ("mariadb",)
    return CATALOG_KINDS if chosen == "all" else (chosen,)


def _chosen_servers(config: pytest.Config) -> list[CatalogKind]:
    """List the servers that can run; who asks for another is told why not."""
    installed = {"postgres": True, "mariadb": mariadb.find_programs() is not None}
    return [kind for kind in _chosen_kinds(config) if installed.get(kind, False)]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log):
    """Hand out groups of tests to the workers, see `lanes.GROUPS`."""
    if config.option.dist != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling  # noqa: PLC0415 - not in an environment without xdist

    class Groups(LoadScopeScheduling):
        _split_scope = staticmethod(lanes.group_of)

    return Groups(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node) -> None:
    """Hand the addresses of the run's servers, one of each kind, to an xdist worker about to start."""
    node.workerinput["ports"] = {
        kind: _start_once(node.config, kind) for kind in _chosen_servers(node.config)
    }


def _start_once(config: pytest.Config, kind: CatalogKind) -> int:
    servers = config.stash.setdefault(_servers, {})
    if kind not in servers:
        is_mysql = config.option.catalog == "mysql"
        servers[kind] = mysql.MySqlServer() if is_mysql else _SERVERS[kind]()
    return servers[kind].port


def pytest_unconfigure(config: pytest.Config) -> None:
    for server in config.stash.get(_servers, {}).values():
        server.stop()


@pytest.fixture(scope="session")
def seed(request: pytest.FixtureRequest) -> int:
    return request.config.option.seed


@pytest.fixture(scope="session")
def size(request: pytest.FixtureRequest) -> str:
    return request.config.option.size


@pytest.fixture(scope="session")
def server_port(request: pytest.FixtureRequest) -> Callable[[CatalogKind], int]:
    """Return the port of the run's one server of a kind."""

    def port(kind: CatalogKind) -> int:
        if kind not in _chosen_kinds(request.config):
            pytest.skip(f"--catalog leaves {kind} out")
        if kind not in _chosen_servers(request.config):
            missing = f"{kind} is not installed: apt-get install {mariadb.PACKAGE}"
            (pytest.fail if os.environ.get("CI") else pytest.skip)(missing)  # CI leaves nothing out
        worker = getattr(request.config, "workerinput", None)
        return worker["ports"][kind] if worker else _start_once(request.config, kind)

    return port


@pytest.fixture(scope="session")
def postgres_port(server_port) -> int:
    return server_port("postgres")


@pytest.fixture
def spec_version() -> str:
    """The version of the lakes that a test makes: a parameter where it is marked `both_versions`."""
    return "1.0"


@pytest.fixture
def new_catalog(server_port, tmp_path: Path, spec_version: str) -> Iterator[NewCatalog]:
    """Make as many empty catalogs as a test asks for, each with a data directory of its own."""
    with ExitStack() as databases:
        made: list[CatalogDatabase] = []

        def make(kind: CatalogKind, version: str = spec_version) -> CatalogDatabase:
            folder = tmp_path / f"lake_{len(made) + 1}"
            if kind in _FRESH:
                location = databases.enter_context(_FRESH[kind](server_port(kind)))
                catalog = CatalogDatabase(kind, location, data_directory(folder))
            else:
                catalog = file_catalog(kind, folder)
            made.append(replace(catalog, spec_version=version))
            return made[-1]

        yield make
        for one in made:
            if one.spec_version == "1.1":
                _check_1_1(one)


def _check_1_1(catalog: CatalogDatabase) -> None:
    """See that what a test at 1.1 leaves is of 1.1, and that the other implementation of 1.1 reads it."""
    version = version_of(catalog)
    assert version in ("1.1", None), f"a test at 1.1 left a lake of {version}"
    if version and catalog.kind in USUAL_KINDS:
        assert list(third_reader.differences(catalog)) == []


@pytest.fixture
def sqlite_catalog(new_catalog: NewCatalog) -> CatalogDatabase:
    return new_catalog("sqlite")


@pytest.fixture
def postgres_catalog(new_catalog: NewCatalog) -> CatalogDatabase:
    return new_catalog("postgres")


@pytest.fixture
def mariadb_catalog(new_catalog: NewCatalog) -> CatalogDatabase:
    return new_catalog("mariadb")


@pytest.fixture
def duckdb_catalog(new_catalog: NewCatalog) -> CatalogDatabase:
    return new_catalog("duckdb")


@pytest.fixture
def catalog(new_catalog: NewCatalog, catalog_kind: CatalogKind) -> CatalogDatabase:
    """An empty catalog of each usual kind that `--catalog` names; of every kind with `every_catalog`."""
    return new_catalog(catalog_kind)


@pytest.fixture
def judge(new_catalog: NewCatalog) -> Callable[[CatalogDatabase], CatalogDatabase]:
    """Make of a 1.1 lake a catalog that the reference attaches; only to read: the files stay the lake's."""
    return lambda lake: as_1_0(lake, new_catalog(lake.kind, "1.0"))


@pytest.fixture
def reference_catalog(new_catalog: NewCatalog, catalog_kind: CatalogKind) -> CatalogDatabase:
    """A second one of the same kind as `catalog`, for the reference to write the same history into.

    It stays at 1.0: a dump of `catalog` is in the words of 1.0 too.
    """
    return new_catalog(catalog_kind, "1.0")


@pytest.fixture
def warnings() -> Iterator[list[str]]:
    """Return the messages of the package's warnings."""
    found: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: found.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("airflow_provider_ducklake")
    logger.addHandler(handler)
    yield found
    logger.removeHandler(handler)
