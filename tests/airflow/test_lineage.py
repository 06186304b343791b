"""What OpenLineage gets of tasks: events of a real DAG run, written by its file transport.

They say what its schemas allow, by the classes that its client generates from them: which fields there
are, of which types, which of them must be there, and the version of the schema. A standard facet is one
whose ``_schemaURL`` a class has; the facets of Airflow's provider are its own, and asked for no more than
what every facet has.
"""

import copy
import enum
import inspect
import json
import pkgutil
import re
import sys
import types
import typing
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import attr
import duckdb
import pytest
from openlineage.client import generated
from openlineage.client.generated import base

from airflow_provider_ducklake import operators
from airflow_provider_ducklake.hooks.lineage import dataset_of_path, flow_of_sql
from airflow_provider_ducklake.lake.format.names.identifiers import QualifiedName
from tests.airflow.services import airflow
from tests.reference.duckdb_lake import open_lake

pytestmark = pytest.mark.submits

_MODULES = [
    import_module(f"{generated.__name__}.{one.name}") for one in pkgutil.iter_modules(generated.__path__)
]
_FACETS: dict[str, type] = {
    one._get_schema(): one
    for module in _MODULES
    for _, one in inspect.getmembers(module, inspect.isclass)
    if issubclass(one, base.BaseFacet) and one.__module__ == module.__name__ != base.__name__
}
_STANDARD_NAMES = "https://openlineage.io/spec/"
# where facets lie, and the class that each of them there derives from
_FACETS_OF: dict[str, type[base.BaseFacet]] = {
    "run": base.RunFacet,
    "job": base.JobFacet,
    "dataset": base.DatasetFacet,
    "inputFacets": base.InputDatasetFacet,
    "outputFacets": base.OutputDatasetFacet,
}


class InvalidEventError(ValueError):
    """An event says what the schemas do not allow."""


def check_event(event: dict[str, Any]) -> int:
    """Check a run event with all that is in it; return how many facets of OpenLineage's own it has.

    Raises:
        InvalidEventError: it is not valid; says where.
    """
    bare = {**event, "run": _bare(event["run"]), "job": _bare(event["job"])}
    for side in ("inputs", "outputs"):
        bare[side] = [_bare(one) for one in event.get(side, [])]
    _built(base.RunEvent, bare, "event")
    if event["schemaURL"] != base.RunEvent._get_schema():
        raise InvalidEventError(f"event: schemaURL is {event['schemaURL']}")
    found = [("run", *one) for one in event["run"].get("facets", {}).items()]
    found += [("job", *one) for one in event["job"].get("facets", {}).items()]
    for dataset in (*event.get("inputs", []), *event.get("outputs", [])):
        for place, key in (("dataset", "facets"), ("inputFacets",) * 2, ("outputFacets",) * 2):
            found += [(place, *one) for one in dataset.get(key, {}).items()]
    return sum(_check_facet(*one) for one in found)


def _bare(holder: dict[str, Any]) -> dict[str, Any]:
    """Return a run, a job or a dataset without its facets, which are checked by their own classes."""
    return {name: {} if name.lower().endswith("facets") else one for name, one in holder.items()}


def _check_facet(place: str, name: str, facet: dict[str, Any]) -> bool:
    """Check a facet; return whether it is one of OpenLineage's own."""
    for key in ("_producer", "_schemaURL"):
        if not urlsplit(facet.get(key, "")).scheme:
            raise InvalidEventError(f"{place}.{name}: {key} is {facet.get(key)!r}, which is no URI")
    kind = _FACETS.get(facet["_schemaURL"])
    if kind is None:
        is_own = facet["_schemaURL"] == _FACETS_OF[place]._get_schema()
        if facet["_schemaURL"].startswith(_STANDARD_NAMES) and not is_own:
            raise InvalidEventError(f"{place}.{name}: no schema {facet['_schemaURL']} is known")
        return False
    if not issubclass(kind, _FACETS_OF[place]):
        raise InvalidEventError(f"{place}.{name}: a {kind.__name__} does not belong there")
    given = {key: value for key, value in facet.items() if key != "_schemaURL"}
    _built(kind, given, f"{place}.{name}")
    return True


def _built(kind: Any, value: Any, where: str) -> Any:
    """Return a value as the class or type hint wants it.

    Raises:
        InvalidEventError: it cannot be one.
    """
    if attr.has(kind):
        return _built_class(kind, value, where)
    origin, of = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return _built_union(of, value, where)
    if origin is list and isinstance(value, list):
        return [_built(of[0], one, f"{where}[{number}]") for number, one in enumerate(value)]
    if origin is dict and isinstance(value, dict):
        return {key: _built(of[1], one, f"{where}.{key}") for key, one in value.items()}
    if inspect.isclass(kind) and issubclass(kind, enum.Enum):
        return kind(value)
    is_it = kind is Any or (
        origin is None and isinstance(value, kind) and (kind is bool or value is not True)
    )
    if not is_it:
        raise InvalidEventError(f"{where}: {value!r} is no {kind}")
    return value


def _built_union(kinds: tuple[Any, ...], value: Any, where: str) -> Any:
    errors = []
    for kind in kinds:
        try:
            return _built(kind, value, where)
        except (InvalidEventError, ValueError) as error:
            errors.append(str(error))
    raise InvalidEventError(f"{where}: {'; '.join(errors)}")


def _built_class(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise InvalidEventError(f"{where}: {value!r} is no {kind.__name__}")
    hints = typing.get_type_hints(kind)
    fields = {one.name: one for one in attr.fields(kind)}
    if unknown := value.keys() - fields.keys():
        raise InvalidEventError(f"{where}: a {kind.__name__} has no {sorted(unknown)}")
    given = {
        fields[name].alias: _built(hints[name], one, f"{where}.{name}")
        for name, one in value.items()
        if fields[name].init
    }
    try:
        return kind(**given)
    except (TypeError, ValueError) as error:
        raise InvalidEventError(f"{where}: {error}") from error


DAG_FILE = """
import json
from datetime import UTC, datetime
from pathlib import Path
import pyarrow as pa
from airflow.sdk import DAG, task
from airflow_provider_ducklake.hooks.compat import hook_lineage_collector
from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.operators import *

CONNECT = {"spark_connect_conn_id": "connect"}
PARENT = ("JobNamespace", "JobName", "RunId")
NAMES = [f"spark.openlineage.{kind}{name}" for kind in ("parent", "rootParent") for name in PARENT]


def seen(task_id, conf, **arguments):
    return DuckLakeSparkInsertOperator(
        task_id=task_id,
        table="seen",
        transform="settings_of_session:row",
        py_files="FILES/settings_of_session.py",
        create_table=True,
        conf={**conf, "spark.app.task": task_id},
        **arguments,
    )


def fail(context, result):
    raise RuntimeError("after the commit")


with DAG("lineage", start_date=datetime(2024, 1, 1, tzinfo=UTC), schedule=None):
    create = DuckLakeDDLOperator(
        task_id="create",
        sql="CREATE TABLE orders (id INT, price DOUBLE); CREATE TABLE totals (id INT, total DOUBLE);"
        "CREATE SCHEMA sales; CREATE TABLE sales.Orders (id INT, price DOUBLE);"
        "CREATE TABLE sales.Large_Orders (id INT, price DOUBLE)",
        create_lake=True,
    )
    add = DuckLakeAddFilesOperator(task_id="add", table="orders", paths="FILES/added.parquet")
    insert = DuckLakeSparkInsertOperator(
        task_id="insert",
        table="orders",
        sql="SELECT CAST(i AS INT) AS id, CAST(j AS DOUBLE) AS price FROM raw",
        sources={"raw": "FILES/{{ 'raw' }}.parquet"},
        **CONNECT,
    )
    sum_up = DuckLakeSparkSQLOperator(
        task_id="sum_up",
        sql="CREATE TEMPORARY VIEW big AS SELECT id, price FROM ORDERS WHERE price > 0;"
        "INSERT INTO totals SELECT id, sum(price) FROM big GROUP BY id",
        **CONNECT,
    )
    submitted = seen("submitted", conf={"spark.app.mine": "yes"})
    own_parent = seen(
        "own_parent",
        **CONNECT,
        conf={name: f"my {number}" for number, name in enumerate([*NAMES, "spark.app.mine"])},
    )
    connected = seen("connected", **CONNECT, conf={"spark.app.mine": "yes"})
    fails = DuckLakeAddFilesOperator(task_id="fails", table="orders", paths="FILES/no.parquet")
    late = DuckLakeDDLOperator(task_id="late", sql="CREATE TABLE late (id INT)", post_execute=fail)

    @task(trigger_rule="all_done")
    def tell():
        rows = pa.table({"id": pa.array([1, 2], pa.int32()), "price": [99.0, 101.0]})
        DuckLakeHook(hook_lineage=False).append_arrow("sales.orders", rows)
        collected = hook_lineage_collector().collected_assets
        uris = [one.asset.uri for one in (*collected.inputs, *collected.outputs)]
        Path("FILES/collected.json").write_text(json.dumps(uris))

    create >> add >> insert >> sum_up >> submitted >> own_parent >> connected >> [fails, late] >> tell()
"""

SETTINGS_OF_SESSION = """
PARENT = ("JobNamespace", "JobName", "RunId")
NAMES = [f"spark.openlineage.{kind}{name}" for kind in ("parent", "rootParent") for name in PARENT]

def row(spark, sources):
    values = [spark.conf.get(name, "none") for name in ["spark.app.task", *NAMES, "spark.app.mine"]]
    return spark.createDataFrame([values], ["task", *(f"c{number}" for number in range(len(values) - 1))])
"""
# All in one process: each one pays for its imports.
RUN = """
import sys
from pathlib import Path
from tests.airflow.dags import parse, sync_dag
for file in sys.argv[1:]:
    sync_dag(parse(Path(file))).test()
"""


def example_of_hook() -> str:
    """Return the DAG file of the page on lineage."""
    page = Path(__file__).parents[2] / "docs" / "assets.md"
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    (example,) = [one for one in blocks if "DuckLakeHook()" in one]
    return str(example)


@pytest.fixture(scope="module")
def told(tmp_path_factory, server) -> tuple[list[dict[str, Any]], Path]:
    """Run the DAGs; return the events, and where its files are."""
    home = tmp_path_factory.mktemp("lineage")
    files, events = home / "files", home / "events.json"
    files.mkdir()
    for name, query in {
        "added": "SELECT 1::INT AS id, 2.5::DOUBLE AS price",
        "raw": "SELECT 3 AS i, 4 AS j",
    }.items():
        duckdb.sql(f"COPY ({query}) TO '{files / f'{name}.parquet'}'")
    (files / "settings_of_session.py").write_text(SETTINGS_OF_SESSION)
    lake = {"catalog_type": "sqlite", "data_path": f"{home}/data/", "foreign_files": True}
    environment = {
        "AIRFLOW_CONN_DUCKLAKE_DEFAULT": json.dumps(
            {"conn_type": "ducklake", "schema": str(home / "lake.sqlite"), "extra": lake}
        ),
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[1]"}),
        "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(
            {"type": "file", "log_file_path": str(events), "append": True}
        ),
        "AIRFLOW__OPENLINEAGE__NAMESPACE": "tests",
        "AIRFLOW__OPENLINEAGE__SPARK_INJECT_PARENT_JOB_INFO": "True",
    }
    environment["AIRFLOW_CONN_CONNECT"] = json.dumps(
        {"conn_type": "spark_connect", "host": "127.0.0.1", "port": server.port}
    )
    with airflow(home / "airflow", environment) as one:
        (one.dags / "lineage.py").write_text(DAG_FILE.replace("FILES", str(files)))
        (one.dags / "large_orders.py").write_text(example_of_hook())
        one.run(RUN, *map(str, sorted(one.dags.glob("*.py"), reverse=True)), program=(sys.executable, "-c"))
    return [json.loads(line) for line in events.read_text().splitlines()], home


def event_of(told, name: str, kind: str = "COMPLETE") -> dict[str, Any]:
    events, _ = told
    (event,) = [one for one in events if (one["job"]["name"], one["eventType"]) == (name, kind)]
    return event


def of_task(told, name: str, kind: str = "COMPLETE") -> dict[str, Any]:
    return event_of(told, f"lineage.{name}", kind)


def outputs(event: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in event["outputs"]}


def test_a_table_is_known_by_its_catalog_and_has_a_version(told):
    event = of_task(told, "create")
    _, home = told

    assert {one["namespace"] for one in event["outputs"]} == {f"ducklake:sqlite://{home}/lake.sqlite"}
    orders = outputs(event)["main.orders"]["facets"]
    assert orders["version"]["datasetVersion"] == "1"
    assert orders["lifecycleStateChange"]["lifecycleStateChange"] == "CREATE"
    fields = [(one["name"], one["type"]) for one in orders["schema"]["fields"]]
    assert fields == [("id", "int32"), ("price", "float64")]


def test_files_that_are_added_are_inputs(told):
    event = of_task(told, "add")
    _, home = told

    assert [(one["namespace"], one["name"]) for one in event["inputs"]] == [
        ("file", f"{home}/files/added.parquet")
    ]
    orders = outputs(event)["main.orders"]
    assert orders["outputFacets"]["outputStatistics"]["rowCount"] == 1
    assert "lifecycleStateChange" not in orders["facets"]


def test_columns_of_an_insert_come_from_its_source(told):
    event = of_task(told, "insert")
    _, home = told

    found = outputs(event)["main.orders"]["facets"]["columnLineage"]["fields"]
    raw = {"namespace": "file", "name": f"{home}/files/raw.parquet"}
    places = {
        column: [(one["namespace"], one["name"], one["field"]) for one in of["inputFields"]]
        for column, of in found.items()
    }
    assert places == {"id": [(*raw.values(), "i")], "price": [(*raw.values(), "j")]}
    assert "SELECT CAST(i AS INT)" in event["job"]["facets"]["sql"]["query"]


def test_spark_sql_reads_tables_at_a_snapshot(told):
    event = of_task(told, "sum_up")

    (orders,) = event["inputs"]
    assert (orders["name"], orders["facets"]["version"]["datasetVersion"]) == (
        "main.orders",
        "3",
    )  # not ORDERS
    found = outputs(event)["main.totals"]["facets"]["columnLineage"]["fields"]
    assert {column: [one["field"] for one in of["inputFields"]] for column, of in found.items()} == {
        "id": ["id"],
        "total": ["price"],
    }


ENDS = {
    "create": "COMPLETE",
    "add": "COMPLETE",
    "insert": "COMPLETE",
    "sum_up": "COMPLETE",
    "submitted": "COMPLETE",
    "own_parent": "COMPLETE",
    "connected": "COMPLETE",
    "fails": "FAIL",
    "late": "FAIL",
    "tell": "COMPLETE",
}


def test_each_task_has_an_event_when_it_starts_and_when_it_ends(told):
    events, _ = told

    found = sorted((one["job"]["name"], one["eventType"]) for one in events if "." in one["job"]["name"])
    expected = [(f"lineage.{name}", kind) for name, end in ENDS.items() for kind in ("START", end)]
    assert found == sorted([*expected, ("large_orders.copy", "START"), ("large_orders.copy", "COMPLETE")])


def test_every_event_is_valid_by_the_schemas(told):
    events, _ = told

    counts = [check_event(one) for one in events]

    assert len(counts) == 2 * (len(ENDS) + 1) + 2  # besides, the ends of two runs
    assert min(counts) > 0
    names = {
        name for one in events for side in ("inputs", "outputs") for of in one[side] for name in of["facets"]
    }
    assert names == {"schema", "version", "lifecycleStateChange", "columnLineage"}


WRONG: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "no run id": (lambda one: one["run"].pop("runId"), "runId"),
    "no UUID": (lambda one: one["run"].update(runId="7"), "badly formed"),
    "another kind": (lambda one: one.update(eventType="DONE"), "eventType"),
    "no name": (lambda one: one["outputs"][0].pop("name"), "name"),
    "an unknown field": (lambda one: one["job"].update(owner="me"), "owner"),
    "a number as a name": (lambda one: one["outputs"][0].update(name=7), "name"),
    "an older schema": (
        lambda one: one["outputs"][0]["facets"]["schema"].update(
            _schemaURL="https://openlineage.io/spec/facets/1-0-0/SchemaDatasetFacet.json"
        ),
        "1-0-0",
    ),
    "no producer": (lambda one: one["outputs"][0]["facets"]["schema"].pop("_producer"), "_producer"),
    "a column without a name": (
        lambda one: one["outputs"][0]["facets"]["schema"]["fields"][0].pop("name"),
        "name",
    ),
    "a facet of outputs among others": (
        lambda one: one["outputs"][0]["facets"].update(one["outputs"][0].pop("outputFacets")),
        "does not belong there",
    ),
    "a count that is none": (
        lambda one: one["outputs"][0]["outputFacets"]["outputStatistics"].update(rowCount="7"),
        "rowCount",
    ),
    "a place without a column": (
        lambda one: one["outputs"][0]["facets"]["columnLineage"]["fields"]["id"]["inputFields"][0].pop(
            "field"
        ),
        "field",
    ),
}


@pytest.mark.parametrize(("spoil", "message"), WRONG.values(), ids=WRONG.keys())
def test_an_event_that_is_not_valid_would_be_found(told, spoil, message):
    event = copy.deepcopy(of_task(told, "insert"))
    check_event(event)

    spoil(event)

    with pytest.raises(InvalidEventError, match=message):
        check_event(event)


def names(told, name: str, kind: str) -> tuple[list[str], list[str]]:
    """Return what an event names as inputs and outputs."""
    event = of_task(told, name, kind)
    return [one["name"] for one in event["inputs"]], [one["name"] for one in event["outputs"]]


def test_a_task_that_starts_names_what_its_arguments_name(told):
    _, home = told

    assert names(told, "create", "START") == (
        [],
        ["main.orders", "main.totals", "sales.Orders", "sales.Large_Orders"],
    )
    assert names(told, "add", "START") == ([f"{home}/files/added.parquet"], ["main.orders"])
    assert names(told, "insert", "START") == ([f"{home}/files/raw.parquet"], ["main.orders"])
    assert names(told, "sum_up", "START") == (["main.ORDERS"], ["main.totals"])  # no catalog was asked
    start, end = of_task(told, "insert", "START"), of_task(told, "insert")
    assert start["outputs"] == [
        {"namespace": end["outputs"][0]["namespace"], "name": "main.orders", "facets": {}, "outputFacets": {}}
    ]
    assert start["job"]["facets"]["sql"]["query"] == end["job"]["facets"]["sql"]["query"]
    assert start["run"]["runId"] == end["run"]["runId"]


def test_a_task_that_fails_says_what_it_was_to_do(told):
    _, home = told

    assert names(told, "fails", "FAIL") == ([f"{home}/files/no.parquet"], ["main.orders"])
    assert outputs(of_task(told, "fails", "FAIL"))["main.orders"]["facets"] == {}


def test_a_task_that_fails_after_its_commit_says_what_it_did(told):
    facets = outputs(of_task(told, "late", "FAIL"))["main.late"]["facets"]

    assert facets["lifecycleStateChange"]["lifecycleStateChange"] == "CREATE"
    assert [one["name"] for one in facets["schema"]["fields"]] == ["id"]


def test_a_task_of_a_user_names_what_its_hook_read_and_wrote(told):
    _, home = told
    event = event_of(told, "large_orders.copy")

    namespace = f"ducklake:sqlite://{home}/lake.sqlite"
    assert [(one["namespace"], one["name"]) for one in event["inputs"]] == [(namespace, "sales.Orders")]
    assert [(one["namespace"], one["name"]) for one in event["outputs"]] == [
        (namespace, "sales.Large_Orders")
    ]


def test_operators_tell_the_collector_of_hooks_nothing(told):
    _, home = told

    assert json.loads((home / "files" / "collected.json").read_text()) == []
    assert of_task(told, "tell")["outputs"] == []


def parent_seen_by(told, task: str) -> dict[str, str]:
    """Return what Spark's session had as settings in a task's job."""
    _, home = told
    with open_lake(f"ducklake:sqlite:{home}/lake.sqlite") as reference:
        (row,) = reference.sql(f"SELECT * EXCLUDE (task) FROM seen WHERE task = '{task}'")
    sides = ("parent", "root")
    return dict(
        zip(
            [*(f"{side} {one}" for side in sides for one in ("namespace", "name", "run")), "own"],
            row,
            strict=True,
        )
    )


@pytest.mark.parametrize("task", ["submitted", "connected"])
def test_a_job_has_its_task_as_parent_besides_the_settings_of_the_user(told, task):
    event = of_task(told, task, "START")
    root = event["run"]["facets"]["parent"]["root"]

    assert parent_seen_by(told, task) == {
        "parent namespace": "tests",
        "parent name": f"lineage.{task}",
        "parent run": event["run"]["runId"],
        "root namespace": "tests",
        "root name": "lineage",
        "root run": root["run"]["runId"],
        "own": "yes",
    }


def test_a_parent_that_the_user_gives_stays(told):
    assert list(parent_seen_by(told, "own_parent").values()) == [f"my {number}" for number in range(7)]


@pytest.mark.parametrize(
    ("path", "dataset"),
    [
        ("s3://bucket/a/b.parquet", ("s3://bucket", "a/b.parquet")),
        ("s3a://bucket/a/", ("s3://bucket", "a")),
        ("gs://bucket", ("gs://bucket", "/")),
        ("/data/x.csv", ("file", "/data/x.csv")),
        ("file:///data/x.csv", ("file", "/data/x.csv")),
        ("abfs://c@account.dfs.core.windows.net/x", ("abfs://c@account.dfs.core.windows.net", "x")),
        ("https://user:s3cret@host.example/x.csv?sig=abc", ("https://host.example", "x.csv")),
        ("https://s3cret@host.example:8443/x.csv", ("https://host.example:8443", "x.csv")),
        ("s3a://KEY:s3cret@bucket/a", ("s3://bucket", "a")),
    ],
)
def test_paths_are_named_as_everybody_names_them(path, dataset):
    assert dataset_of_path(path) == dataset


def test_sql_that_cannot_be_read_has_no_queries():
    flow = flow_of_sql("INSERT nonsense", {"raw": "/data/x"}, "main", 3)

    assert (flow.queries, flow.at, list(flow.reads)) == ((), 3, ["raw"])


def test_sql_names_what_it_reads():
    flow = flow_of_sql(
        "INSERT INTO s.t SELECT a FROM orders JOIN raw USING (a)", {"raw": "/data/x"}, "sales", 3
    )

    assert {name: read.table for name, read in flow.reads.items()} == {
        "lake_table_0": QualifiedName.of("sales.orders"),
        "raw": None,
    }
    assert [str(one.table) for one in flow.queries] == ["s.t"]


LAKE = "ducklake:postgres://db:5432/lake"
STARTS: dict[str, tuple[type, dict[str, Any], list[str], list[str]]] = {
    "insert": (
        operators.DuckLakeSparkInsertOperator,
        {"table": "orders", "source": "s3a://raw/orders/"},
        ["s3://raw orders"],
        [f"{LAKE} main.orders"],
    ),
    "insert that is staged": (
        operators.DuckLakeSparkInsertOperator,
        {"table": ("sales", "orders"), "sql": "SELECT 1 AS id", "stage_only": True},
        [],
        [],
    ),
    "insert of a table that a template names": (
        operators.DuckLakeSparkInsertOperator,
        {"table": "{{ params.table }}", "source": "/raw/{{ ds }}.csv"},
        [],
        [],
    ),
    "insert from a connection": (
        operators.DuckLakeSparkInsertOperator,
        {"table": "orders", "source": {"format": "jdbc", "conn_id": "shop", "options": {"dbtable": "o"}}},
        [],
        [f"{LAKE} main.orders"],
    ),
    "merge of a table": (
        operators.DuckLakeSparkMergeOperator,
        {"table": "orders", "source_table": "sales.changes", "on": "id", "update_all": True},
        [f"{LAKE} main.orders", f"{LAKE} sales.changes"],
        [f"{LAKE} main.orders"],
    ),
    "delete": (
        operators.DuckLakeSparkDeleteOperator,
        {"table": "orders", "where": "id = 1"},
        [f"{LAKE} main.orders"],
        [f"{LAKE} main.orders"],
    ),
    "update": (
        operators.DuckLakeSparkUpdateOperator,
        {"table": "orders", "set": {"id": "2"}, "where": "id = 1"},
        [f"{LAKE} main.orders"],
        [f"{LAKE} main.orders"],
    ),
    "statements": (
        operators.DuckLakeSparkSQLOperator,
        {
            "sql": ["INSERT INTO a SELECT * FROM b", "INSERT INTO A SELECT * FROM sales.c"],
            "default_schema": "x",
        },
        [f"{LAKE} x.b", f"{LAKE} sales.c"],
        [f"{LAKE} x.a"],
    ),
    "function over tables": (
        operators.DuckLakeSparkSQLOperator,
        {"transform": "m:f", "tables": ["sales.b"], "targets": {"sales.a": "append"}},
        [f"{LAKE} sales.b"],
        [f"{LAKE} sales.a"],
    ),
    "stream": (
        operators.DuckLakeSparkStreamOperator,
        {"table": "orders", "transform": "m:f", "checkpoint": "/c", "sources": {"x": "/data/x.csv"}},
        ["file /data/x.csv"],
        [f"{LAKE} main.orders"],
    ),
    "DDL": (
        operators.DuckLakeDDLOperator,
        {
            "sql": "CREATE SCHEMA s; CREATE TABLE s.a (i INT); ALTER TABLE b ADD COLUMN x INT; TRUNCATE c;"
            "DROP TABLE d; ALTER TABLE s.A RENAME TO e; CREATE VIEW v AS SELECT 1"
        },
        [],
        [f"{LAKE} s.a", f"{LAKE} main.b", f"{LAKE} main.c"],
    ),
    "commit": (
        operators.DuckLakeCommitOperator,
        {"staged": [{"staged": "/x/stage.json", "table": "sales.orders"}, "/y/stage.json", None]},
        [],
        [f"{LAKE} sales.orders"],
    ),
    "restore": (operators.DuckLakeRestoreOperator, {"table": "orders", "at": 3}, [], [f"{LAKE} main.orders"]),
    "compaction": (operators.DuckLakeSparkMergeAdjacentFilesOperator, {"table": "orders"}, [], []),
    "health": (operators.DuckLakeTableHealthOperator, {}, [], []),
}


@pytest.mark.parametrize(("kind", "arguments", "inputs", "outputs"), STARTS.values(), ids=STARTS.keys())
def test_arguments_say_what_a_task_is_to_do_without_asking_a_catalog(
    set_connection, kind, arguments, inputs, outputs
):
    host = {
        "host": "db",
        "schema": "lake",
        "extra": {"catalog_type": "postgres", "storage_conn_id": "absent"},
    }
    conn_id = set_connection("nowhere", **host)
    task = kind(task_id="task", ducklake_conn_id=conn_id, **arguments)

    found = task.get_openlineage_facets_on_start()

    assert [f"{one.namespace} {one.name}" for one in found.inputs] == inputs
    assert [f"{one.namespace} {one.name}" for one in found.outputs] == outputs
    assert task.get_openlineage_facets_on_failure(None) == found


@pytest.mark.parametrize("conn_id", ["absent", "{{ params.lake }}"])
def test_a_lake_that_is_not_known_has_no_datasets(conn_id):
    task = operators.DuckLakeDDLOperator(
        task_id="task", ducklake_conn_id=conn_id, sql="CREATE TABLE t (i INT)"
    )

    assert task.get_openlineage_facets_on_start() is None
