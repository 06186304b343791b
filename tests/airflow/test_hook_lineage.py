"""What hooks tell Airflow's collector: each table once, not too many, and its failures reach no task."""

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

try:
    from airflow.sdk import lineage as airflow_lineage
except ImportError:  # Airflow 3.1
    from airflow.lineage import hook as airflow_lineage  # type: ignore[attr-defined,no-redef]

from airflow_provider_ducklake.hooks.compat import hook_lineage_collector
from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.hooks.lineage import HookLineage
from airflow_provider_ducklake.lake.format.names.identifiers import QualifiedName
from tests.reference.catalogs import CatalogDatabase

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
def hook(connect, sqlite_catalog: CatalogDatabase) -> Iterator[DuckLakeHook]:
    """A hook of a lake with the table sales.Orders."""
    conn_id = connect(sqlite_catalog, data_path=sqlite_catalog.data_path)
    with (
        DuckLakeHook(conn_id, hook_lineage=False) as one,
        one.get_or_create_lake().transaction() as tx,
    ):
        tx.create_schema("sales")
        tx.create_table("sales.Orders", {"i": "int64"})
    with DuckLakeHook(conn_id) as one:
        yield one


def test_each_table_is_told_once_in_each_direction(hook, use):
    collector = use(CountingCollector())

    for _ in range(3):
        hook.append_arrow("sales.orders", ROWS)
        assert hook.read_arrow("SALES.orders").num_rows == hook.row_count("sales.orders")

    found = collector.collected_assets
    assert collector.calls == 2
    for side in (found.inputs, found.outputs):
        (one,) = side
        assert one.asset.uri == "ducklake://ducklake_default/sales/orders"
        assert one.asset.extra == {"ducklake_table": "sales.Orders"}
        assert isinstance(one.context, DuckLakeHook)
        assert one.context is not hook  # which would keep its lake open


def test_what_a_hook_created_is_told(connect, sqlite_catalog, use):
    collector = use(CountingCollector())

    conn_id = connect(sqlite_catalog, data_path=sqlite_catalog.data_path)
    with DuckLakeHook(conn_id) as hook, hook.get_or_create_lake().transaction() as tx:
        tx.create_table("new", {"i": "int64"})

    assert [one.asset.uri for one in collector.collected_assets.outputs] == [
        "ducklake://ducklake_default/main/new"
    ]


def test_a_failing_collector_fails_no_task(hook, use):
    use(FailingCollector())

    hook.append_arrow("sales.orders", ROWS)

    assert hook.read_arrow("sales.orders").num_rows == 2


def test_a_collector_that_cannot_be_had_fails_no_task(hook, monkeypatch):
    monkeypatch.setattr(airflow_lineage, "get_hook_lineage_collector", lambda: 1 / 0)

    hook.append_arrow("sales.orders", ROWS)

    assert hook.read_arrow("sales.orders").num_rows == 2


def test_a_hook_of_an_operator_tells_nothing(hook, use):
    collector = use(CountingCollector())

    with DuckLakeHook(hook.ducklake_conn_id, hook_lineage=False) as silent:
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
