"""The hook on real catalogs: open, create, read, and say what is wrong without saying secrets."""

import re
import sqlite3
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import structlog
from airflow.models.connection import Connection as CoreConnection
from sqlalchemy import NullPool, create_engine, inspect

from airflow_provider_ducklake import operators
from airflow_provider_ducklake.hooks.compat import hook_lineage_collector
from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.hooks.lineage import HookLineage
from airflow_provider_ducklake.hooks.task import is_incurable
from airflow_provider_ducklake.lake import errors
from airflow_provider_ducklake.lake.catalog.database.connect import parse_url
from airflow_provider_ducklake.lake.format.names.identifiers import QualifiedName
from airflow_provider_ducklake.sensors.snapshot import DuckLakeSnapshotSensor
from tests.airflow.conftest import connection_fields
from tests.airflow.dags import context_of
from tests.interop.job_columns import another_user
from tests.interop.job_columns import run as run_sql
from tests.interop.lakes import by_duckdb
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake

SECRET = "tr0ub4dor/3 &x"


@pytest.fixture
def lake_of_duckdb(catalog: CatalogDatabase, connect: Callable[..., str]) -> CatalogDatabase:
    with open_lake(catalog, data_inlining_row_limit=0) as reference:
        reference.sql("CREATE TABLE orders (id INT); INSERT INTO orders VALUES (1), (2)")
    connect(catalog)
    return catalog


def test_a_mistyped_data_path_makes_no_lake_and_can_be_corrected(sqlite_catalog, set_connection):
    fields = connection_fields(sqlite_catalog, data_path="/dev/null/lake/")
    set_connection(**fields)
    with pytest.raises(errors.StorageError, match="/dev/null/lake"):
        DuckLakeHook().get_or_create_lake()

    set_connection(**connection_fields(sqlite_catalog, data_path=sqlite_catalog.data_path))
    with DuckLakeHook().get_or_create_lake() as lake:
        assert lake.data_path == sqlite_catalog.data_path


def test_making_a_hook_looks_at_no_connection():
    hook = DuckLakeHook("no_such_connection")

    shell = "connection 'no_such_connection' does not exist.*set AIRFLOW_CONN_NO_SUCH_CONNECTION"
    with pytest.raises(errors.InvalidInputError, match=shell):
        hook.lake()


@pytest.mark.usefixtures("lake_of_duckdb")
def test_the_hook_opens_the_lake_once():
    hook = DuckLakeHook()

    lake = hook.lake()

    assert hook.lake() is lake is hook.get_conn()
    assert lake.current_snapshot().id == 2
    hook.close()
    assert hook.lake() is not lake
    hook.close()


@pytest.mark.usefixtures("lake_of_duckdb")
def test_the_hook_reads_and_writes_without_spark():
    hook = DuckLakeHook()

    with hook.transaction(author="etl", message="one more order") as tx:
        tx.append_arrow("orders", pa.table({"id": pa.array([3], pa.int32())}))

    assert tx.committed.id == 3
    assert sorted(hook.read_arrow("orders", columns=["id"]).column("id").to_pylist()) == [1, 2, 3]
    assert sorted(hook.read_arrow("orders", at=2).column("id").to_pylist()) == [1, 2]
    four = pa.table({"id": pa.array([4], pa.int32())})
    assert hook.append_arrow("orders", four, message="once", commit_key="four").id == 4
    assert hook.append_arrow("orders", four, message="once", commit_key="four").is_earlier
    assert hook.read_arrow("orders").num_rows == 4
    hook.close()


@pytest.mark.every_catalog
def test_a_lake_is_created_only_where_that_is_asked_for(catalog, connect):
    connect(catalog, data_path=catalog.data_path)
    with pytest.raises(errors.NotADuckLakeError):
        DuckLakeHook().lake()

    with closing(DuckLakeHook().get_or_create_lake()) as created:
        assert created.data_path == catalog.data_path
        first = created.current_snapshot()
    with closing(DuckLakeHook().get_or_create_lake()) as found:
        assert found.current_snapshot() == first
    assert by_duckdb(catalog, "SELECT count(*) FROM ducklake_snapshots('lake')") == [(1,)]


def test_a_connection_may_create_its_lake_at_first_use(sqlite_catalog, connect):
    connect(sqlite_catalog, data_path=sqlite_catalog.data_path, create_lake=True)
    works, message = DuckLakeHook().test_connection()
    assert works
    assert "the first task creates it" in message
    assert not Path(sqlite_catalog.location).exists()

    for _ in range(2):
        with DuckLakeHook() as hook:
            assert hook.lake().current_snapshot().id == 0

    assert by_duckdb(sqlite_catalog, "SELECT count(*) FROM ducklake_snapshots('lake')") == [(1,)]


def test_a_new_lake_needs_a_place_for_its_files(sqlite_catalog, connect):
    connect(sqlite_catalog)

    with pytest.raises(errors.InvalidOptionError, match=r"Data path \(data_path\): is empty"):
        DuckLakeHook().get_or_create_lake()


def test_a_data_path_that_is_not_the_lakes_is_refused(lake_of_duckdb, connect, tmp_path):
    connect(lake_of_duckdb, data_path=f"{tmp_path}/elsewhere")

    with pytest.raises(errors.InvalidOptionError) as raised:
        DuckLakeHook().lake()

    assert f"'{tmp_path}/elsewhere/'" in str(raised.value)
    assert lake_of_duckdb.data_path in str(raised.value)


def test_the_test_button_names_version_snapshot_and_data_path(lake_of_duckdb):
    before = set(Path(lake_of_duckdb.data_path).rglob("*"))

    worked, message = DuckLakeHook().test_connection()

    assert worked
    assert message.startswith("DuckLake 1.0 at snapshot 2, made at 20")
    assert message.endswith(f"data path {lake_of_duckdb.data_path} is writable.")
    assert set(Path(lake_of_duckdb.data_path).rglob("*")) == before


@pytest.mark.filterwarnings("ignore:ProvidersManager.hooks is deprecated")  # Airflow asks itself the old way
def test_airflows_own_test_of_an_unsaved_connection_goes_through(lake_of_duckdb, monkeypatch):
    """What the api-server does behind the button: the connection travels as an environment variable."""
    fields = connection_fields(lake_of_duckdb, storage_options={"client_kwargs": {"region_name": "eu"}})
    unsaved = CoreConnection(conn_id="unsaved", conn_type="ducklake", **fields)
    monkeypatch.setenv("AIRFLOW_CONN_UNSAVED", unsaved.get_uri())

    worked, message = unsaved.test_connection()

    assert worked, message


def test_the_test_button_says_that_the_data_path_is_not_writable(sqlite_catalog, connect):
    by_duckdb(sqlite_catalog, "CREATE TABLE orders (id INT)")
    connect(sqlite_catalog)
    data = Path(sqlite_catalog.data_path)
    data.rmdir()
    data.write_text("a file where the folder was")

    worked, message = DuckLakeHook().test_connection()

    assert not worked
    assert str(data) in message


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ({}, "This connection, field Catalog type (catalog_type)"),
        ({"catalog_type": "oracle"}, "'oracle'"),
        ({"catalog_type": "sqlite"}, "Database (schema)"),
    ],
)
def test_the_test_button_says_which_field_is_wrong(set_connection, extra, said):
    set_connection(extra=extra)

    worked, message = DuckLakeHook().test_connection()

    assert not worked
    assert said in message


@pytest.mark.every_catalog
def test_the_test_button_is_green_where_all_is_ready_for_a_new_lake(catalog, connect):
    data_path = f"{catalog.data_path}not/there/yet/"
    connect(catalog, data_path=data_path)

    worked, message = DuckLakeHook().test_connection()

    assert worked, message
    assert message.startswith("No lake yet: ")
    assert f"the data path {data_path} is writable" in message
    assert "DuckLakeDDLOperator(create_lake=True)" in message
    assert not Path(data_path).exists()
    with DuckLakeHook() as hook:
        assert hook.get_or_create_lake().data_path == data_path


def test_the_test_button_says_that_a_new_lake_needs_a_data_path(catalog, connect):
    connect(catalog)

    worked, message = DuckLakeHook().test_connection()

    assert not worked
    assert message.startswith(
        "This connection, field Data path (data_path): is empty, and there is no lake yet."
    )


@pytest.mark.parametrize("is_there", [True, False])
def test_the_test_button_says_that_the_user_may_not_create_tables(postgres_catalog, connect, is_there):
    if is_there:
        by_duckdb(postgres_catalog, "CREATE TABLE orders (id INT)")
    with another_user(postgres_catalog, on_schema="USAGE") as theirs:
        connect(theirs, data_path=theirs.data_path)

        worked, message = DuckLakeHook().test_connection()

    assert not worked
    assert "refused (permission denied for schema public; tasks create tables there" in message


def test_the_test_button_leaves_no_table_and_takes_a_schema_that_is_there(postgres_catalog, connect):
    run_sql(postgres_catalog, "CREATE SCHEMA mine")
    with another_user(postgres_catalog) as theirs:
        user = re.search("user=(\\w+)", theirs.location)[1]
        run_sql(postgres_catalog, f"GRANT ALL ON SCHEMA mine TO {user}")
        for metadata_schema in ("public", "mine"):
            connect(theirs, data_path=theirs.data_path, metadata_schema=metadata_schema)
            worked, message = DuckLakeHook().test_connection()
            assert worked, message
        with DuckLakeHook() as hook:
            hook.get_or_create_lake()
            assert DuckLakeHook().test_connection()[0]
            with create_engine(
                parse_url(postgres_catalog.sqlalchemy_url), poolclass=NullPool
            ).connect() as it:
                assert not [name for name in inspect(it).get_table_names("mine") if "check" in name]


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_the_test_button_says_that_a_file_does_not_exist(kind, new_catalog, set_connection):
    catalog = new_catalog(kind)
    fields = connection_fields(catalog, data_path=catalog.data_path)
    set_connection(**fields | {"schema": f"{catalog.location}.typo"})

    worked, message = DuckLakeHook().test_connection()

    assert worked
    assert f"{catalog.location}.typo does not exist: there is no such file" in message
    assert not Path(f"{catalog.location}.typo").exists()

    missing = f"{Path(catalog.location).parent}/typo"
    set_connection(**fields | {"schema": f"{missing}/lake.{kind}"})
    worked, message = DuckLakeHook().test_connection()

    assert (worked, f"its directory {missing} does not exist. Create it" in message) == (False, True)


def test_the_test_button_says_that_the_data_path_of_a_new_lake_cannot_be_made(
    sqlite_catalog, connect, tmp_path
):
    (tmp_path / "file").write_text("no directory")
    connect(sqlite_catalog, data_path=f"{tmp_path}/file/files/")

    worked, message = DuckLakeHook().test_connection()

    assert (worked, f"Cannot make the directory {tmp_path}/file/files" in message) == (False, True)


def test_a_missing_driver_is_named_with_what_to_install(set_connection, monkeypatch):
    set_connection(host="db", schema="lakehouse", password=SECRET, extra={"catalog_type": "postgres"})
    monkeypatch.setitem(sys.modules, "psycopg", None)

    worked, message = DuckLakeHook().test_connection()

    assert not worked
    assert "pip install 'psycopg[binary]>=3.2'" in message
    assert "tr0ub4dor" not in message


@pytest.mark.parametrize("wrong", ["port", "database"])
def test_an_unreachable_catalog_says_so_without_the_password(postgres_catalog, set_connection, wrong):
    fields = connection_fields(postgres_catalog, storage_options={"secret": SECRET})
    fields |= {"password": SECRET, **({"port": 1} if wrong == "port" else {"schema": "no_such_database"})}
    set_connection(**fields)

    kind = errors.CatalogUnavailableError if wrong == "port" else errors.CatalogAddressError
    with pytest.raises(kind) as raised:
        DuckLakeHook().lake()
    worked, message = DuckLakeHook().test_connection()

    assert is_incurable(raised.value) == (wrong == "database")
    shown = (
        f"{''.join(traceback.format_exception(raised.value))} {raised.value!r} {raised.value.args} {message}"
    )
    assert not worked
    assert "tr0ub4dor" not in shown
    assert "127.0.0.1" in message


def test_a_driver_that_does_not_load_is_named_with_its_own_extra(set_connection, monkeypatch, tmp_path):
    (tmp_path / "pymysql").mkdir()
    (tmp_path / "pymysql" / "__init__.py").write_text("raise ImportError('libssl is missing')")
    for name in [name for name in sys.modules if name.partition(".")[0] == "pymysql"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    set_connection(host="db", schema="lakehouse", extra={"catalog_type": "mysql"})

    _, message = DuckLakeHook().test_connection()

    assert "libssl is missing" in message
    assert "pip install 'pymysql>=1.1.1'" in message


@pytest.mark.usefixtures("lake_of_duckdb")
def test_the_first_line_of_a_log_names_the_lake(catalog):
    with structlog.testing.capture_logs() as entries, DuckLakeHook() as hook:
        hook.lake()
        hook.read_arrow("main.orders")

    lines = [one["event"] % one.get("positional_args", ()) for one in entries]
    (line,) = [one for one in lines if catalog.data_path in one]
    place = r"(SQLite|DuckDB) /\S+|(PostgreSQL|MySQL) \S+ at 127\.0\.0\.1:\d+"
    assert re.fullmatch(
        rf"Lake ducklake_default: DuckLake 1\.0 in ({place}), files in {catalog.data_path}", line
    )


@pytest.mark.parametrize(
    "task",
    [
        operators.DuckLakeTableHealthOperator(task_id="task"),
        operators.DuckLakeVerifyOperator(task_id="task"),
        operators.DuckLakeCleanupOldFilesOperator(task_id="task", dry_run=True),
        operators.DuckLakeDeleteOrphanedFilesOperator(task_id="task", dry_run=True),
        operators.DuckLakeExpireSnapshotsOperator(task_id="task", older_than="9 days", dry_run=True),
        operators.DuckLakeMigrateOperator(task_id="task", dry_run=True),
        operators.DuckLakeDDLOperator(task_id="task", sql="CREATE TABLE IF NOT EXISTS orders (id INT)"),
        DuckLakeSnapshotSensor(task_id="task", table="main.orders", since=0),
    ],
    ids=lambda task: type(task).__name__,
)
def test_the_first_line_of_each_task_names_the_lake(sqlite_catalog, connect, task):
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as reference:
        reference.sql("CREATE TABLE orders (id INT); INSERT INTO orders VALUES (1), (2)")
    connect(sqlite_catalog)

    with structlog.testing.capture_logs() as entries:
        act = task.poke if isinstance(task, DuckLakeSnapshotSensor) else task.execute
        act(context_of("task") | {"dag_run": None})

    ours = [one for one in entries if "outside of the Task Runner" not in one["event"]]
    assert f"files in {sqlite_catalog.data_path}" in ours[0]["event"] % ours[0].get("positional_args", ())


HOSTILE_DATA_PATHS = [
    "/elsewhere/",
    "/elsewhere",
    "../elsewhere/",
    "{}../elsewhere/",
    "file:///",
    "s3://evil/",
    "",
    "/",
]


def test_a_data_path_that_is_a_uri_is_pinned_by_its_path_or_as_it_is(sqlite_catalog, connect):
    with open_lake(replace(sqlite_catalog, data_path=f"file://{sqlite_catalog.data_path}")) as reference:
        reference.sql("CREATE TABLE orders (id INT)")
    for spelled in (sqlite_catalog.data_path, f"file://{sqlite_catalog.data_path}"):
        connect(sqlite_catalog, data_path=spelled)
        assert DuckLakeHook().lake().data_path == f"file://{sqlite_catalog.data_path}"


@pytest.mark.parametrize("value", HOSTILE_DATA_PATHS)
def test_a_connection_that_has_a_data_path_pins_it(sqlite_catalog, connect, value):
    by_duckdb(sqlite_catalog, "CREATE TABLE orders (id INT)", data_inlining_row_limit=0)
    with closing(sqlite3.connect(sqlite_catalog.location)) as database, database:
        database.execute(
            "UPDATE ducklake_metadata SET value = ? WHERE key = 'data_path'",
            [value.format(sqlite_catalog.data_path)],
        )
    connect(sqlite_catalog, data_path=sqlite_catalog.data_path)

    with pytest.raises(errors.InvalidOptionError, match="is not the data path of this lake"):
        DuckLakeHook().lake()


# --- what hooks report to Airflow's collector ---


try:
    from airflow.sdk import lineage as airflow_lineage
except ImportError:  # Airflow 3.1
    from airflow.lineage import hook_of_orders as airflow_lineage  # type: ignore[attr-defined,no-redef]

ROWS = pa.table({"i": pa.array([1, 2], pa.int64())})
Use = Callable[[Any], Any]


class CountingCollector(airflow_lineage.HookLineageCollector):
    """Airflow's own, which notes how often it is called."""

    calls = 0

    def create_asset(self, **named: Any) -> Any:
        self.calls += 1
        return super().create_asset(**named)


class FailingCollector(airflow_lineage.HookLineageCollector):
    """One of somebody who made a mistake."""

    def add_input_asset(self, *_: Any, **__: Any) -> None:
        raise RuntimeError("no inputs today")

    def add_output_asset(self, *_: Any, **__: Any) -> None:
        raise RuntimeError("no outputs today")


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Use:
    """Have Airflow return another collector, as a reader of lineage makes it."""

    def use(collector: Any) -> Any:
        monkeypatch.setattr(airflow_lineage, "get_hook_lineage_collector", lambda: collector)
        return collector

    return use


@pytest.fixture
def hook_of_orders(connect, sqlite_catalog: CatalogDatabase) -> Iterator[DuckLakeHook]:
    """A hook of a lake with the table sales.Orders."""
    conn_id = connect(sqlite_catalog, data_path=sqlite_catalog.data_path)
    with DuckLakeHook(conn_id, hook_lineage=False) as one, one.get_or_create_lake().transaction() as tx:
        tx.create_schema("sales")
        tx.create_table("sales.Orders", {"i": "int64"})
    with DuckLakeHook(conn_id) as one:
        yield one


def test_each_table_is_told_once_in_each_direction(hook_of_orders, use):
    collector = use(CountingCollector())

    for _ in range(3):
        hook_of_orders.append_arrow("sales.orders", ROWS)
        assert hook_of_orders.read_arrow("SALES.orders").num_rows == hook_of_orders.row_count("sales.orders")

    found = collector.collected_assets
    assert collector.calls == 2
    for side in (found.inputs, found.outputs):
        (one,) = side
        assert one.asset.uri == "ducklake://ducklake_default/sales/orders"
        assert one.asset.extra == {"ducklake_table": "sales.Orders"}
        assert isinstance(one.context, DuckLakeHook)
        assert one.context is not hook_of_orders  # which would keep its lake open


def test_what_a_hook_created_is_told(connect, sqlite_catalog, use):
    collector = use(CountingCollector())

    conn_id = connect(sqlite_catalog, data_path=sqlite_catalog.data_path)
    with DuckLakeHook(conn_id) as hook_of_orders, hook_of_orders.get_or_create_lake().transaction() as tx:
        tx.create_table("new", {"i": "int64"})

    assert [one.asset.uri for one in collector.collected_assets.outputs] == [
        "ducklake://ducklake_default/main/new"
    ]


def test_a_failing_collector_fails_no_task(hook_of_orders, use):
    use(FailingCollector())

    hook_of_orders.append_arrow("sales.orders", ROWS)

    assert hook_of_orders.read_arrow("sales.orders").num_rows == 2


def test_a_collector_that_cannot_be_had_fails_no_task(hook_of_orders, monkeypatch):
    monkeypatch.setattr(airflow_lineage, "get_hook_lineage_collector", lambda: 1 / 0)

    hook_of_orders.append_arrow("sales.orders", ROWS)

    assert hook_of_orders.read_arrow("sales.orders").num_rows == 2


def test_a_hook_of_an_operator_tells_nothing(hook_of_orders, use):
    collector = use(CountingCollector())

    with DuckLakeHook(hook_of_orders.ducklake_conn_id, hook_lineage=False) as silent:
        silent.append_arrow("sales.orders", ROWS)
        silent.read_arrow("sales.orders")

    assert collector.calls == 0


def test_no_more_than_a_hundred_tables_are_told(use):
    collector = use(CountingCollector())
    lineage = HookLineage(DuckLakeHook("many"))

    for number in range(150):
        lineage.has_read(QualifiedName.of(f"t{number}"))
    lineage.has_written([QualifiedName.of(f"t{number}") for number in range(150)])

    assert collector.calls == 200


def test_nothing_is_made_where_nobody_reads_it(use):
    use(airflow_lineage.NoOpCollector())

    assert hook_lineage_collector() is None
