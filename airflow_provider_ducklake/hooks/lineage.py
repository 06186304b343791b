"""Report what a task reads and writes to OpenLineage.

Datasets are named by the catalog database, and not by the id of an Airflow connection. Before a
task runs, and if it fails, only its arguments are used; what it did is read from the catalog after the
commit, and only if OpenLineage is installed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook

from ..assets.ducklake import SCHEME, table_of
from ..lake.errors import DuckLakeError, InvalidInputError, InvalidNameError, NotFoundError
from ..lake.format.log_lines import logger
from ..lake.format.names.identifiers import FoldedName, QualifiedName, SchemaPath, fold
from ..lake.format.versions import NEWEST, write_version
from ..lake.writes.arguments import is_template
from .connection import ConnectionSettings, read_settings
from .ducklake import DuckLakeHook

if TYPE_CHECKING:
    from airflow.sdk import Asset

    from ..lake.catalog.lake import Lake
    from ..lake.format.schema import Column, TableSchema
    from ..lake.format.snapshots import TableSnapshot
    from ..lake.planning.reading.watch import RangeReport
    from .task import TaskDone


# Report the tables a task reads and writes through a hook to Airflow's hook lineage.
#
# For tasks of users: OpenLineage, say, shows what the collector was given. Operators report their own
# tables (``hooks/lineage.py``), and their hooks report nothing. No task may fail or wait for it: each table
# is reported once in each direction, at most ``_MOST`` of them, and none if lineage is not collected.


log = logger(__name__)

NAME = "ducklake_table"  # key of an asset's extra: the table as the catalog spells it, which a URI does not
_MOST = 100  # tables in each direction, which is as many as the collector takes unless configured otherwise


class HookLineage:
    """The ``LakeObserver`` of a hook's lake.

    The collector keeps the hook to the end of the process, so it is one that has opened no lake.
    """

    def __init__(self, hook: DuckLakeHook) -> None:
        self._hook = hook
        self._read: set[FoldedName] = set()
        self._written: set[FoldedName] = set()

    def has_read(self, table: QualifiedName) -> None:
        """Report a table that was read."""
        self._report("add_input_asset", table, self._read)

    def has_written(self, tables: Sequence[QualifiedName]) -> None:
        """Report the tables that a snapshot changed."""
        for table in tables:
            self._report("add_output_asset", table, self._written)

    def _report(self, how: str, table: QualifiedName, reported: set[FoldedName]) -> None:
        if table.folded in reported or len(reported) >= _MOST:
            return
        reported.add(table.folded)
        try:
            from .compat import hook_lineage_collector

            collector = hook_lineage_collector()
            if collector is not None:
                getattr(collector, how)(
                    context=self._hook,
                    scheme=SCHEME,
                    asset_kwargs={"table": table.parts, "ducklake_conn_id": self._hook.ducklake_conn_id},
                    asset_extra={NAME: str(table)},
                )
        except Exception as error:  # noqa: BLE001 - the rows are read, or there, whatever a reader of lineage does
            log.warning("No hook lineage of table %s: %s", table, error)


Facets = Any  # OpenLineage's classes are there only where it is installed


@dataclass(frozen=True, slots=True)
class LineageRead:
    """Something that a task read: a table of the lake at a snapshot, or a dataset outside."""

    table: QualifiedName | None = None
    dataset: tuple[str, str] | None = None  # namespace and name


@dataclass(frozen=True, slots=True)
class Query:
    """A query whose rows went to a table, and the columns they went to, in order: none means all of them.

    ``columns`` None: by its own names. It names what it reads as ``Flow.reads`` does.
    """

    table: QualifiedName
    text: str
    columns: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Flow:
    """A verb's reads, by the names in its queries, and their snapshot.

    ``writes`` are the tables that it is to change, as far as its arguments name them.
    """

    reads: Mapping[str, LineageRead] = field(default_factory=dict)
    queries: tuple[Query, ...] = ()
    views: Mapping[str, str] = field(default_factory=dict)  # queries that others name
    at: int | None = None
    sql: str | None = None
    overwrites: bool = False
    writes: tuple[QualifiedName, ...] = ()


class LineageOperator(Protocol):
    """The part of an operator that is used here."""

    ducklake_conn_id: str
    done: TaskDone

    def flow(self) -> Flow:
        """Collect what the task reads and does, by its arguments."""


def namespace_of(settings: ConnectionSettings) -> str:
    """Return the namespace of a lake's tables, its catalog without a user: ``ducklake:postgres://host:5432/db``."""
    url = settings.url
    kind = url.get_backend_name().replace("postgresql", "postgres")
    if url.host is None:
        return f"ducklake:{kind}://{url.database}"
    port = url.port or {"postgres": 5432, "mysql": 3306}.get(kind) or ""
    schema = f"/{settings.metadata_schema}" if settings.metadata_schema else ""
    return f"ducklake:{kind}://{url.host}:{port}/{url.database}{schema}"


_AZURE = ("abfs", "abfss", "wasb", "wasbs")  # the name before their @ is a container's


def dataset_of_path(path: str) -> tuple[str, str]:
    """Return namespace and name of a path, as OpenLineage's conventions have them, without a login.

    >>> dataset_of_path("s3a://bucket/raw/orders/"), dataset_of_path("/data/orders.csv")
    (('s3://bucket', 'raw/orders'), ('file', '/data/orders.csv'))
    """
    parts = urlsplit(path)
    if not parts.netloc:
        return "file", parts.path.rstrip("/") or "/"
    scheme = {"s3a": "s3", "s3n": "s3"}.get(parts.scheme, parts.scheme)
    login, _, host = parts.netloc.rpartition("@")
    is_container = scheme in _AZURE and ":" not in login
    return f"{scheme}://{parts.netloc if is_container else host}", parts.path.strip("/") or "/"


def reads_of(sources: Mapping[str, object]) -> dict[str, LineageRead]:
    """Collect the paths among a task's sources; JDBC connections are left out."""
    found = {}
    for name, source in sources.items():
        path = source.get("path") if isinstance(source, Mapping) else source
        if isinstance(path, str) and not is_template(path):
            found[name] = LineageRead(dataset=dataset_of_path(path))
    return found


def named(*tables: object) -> tuple[QualifiedName, ...]:
    """Return the names among what operators were given as tables; templates and the like are none.

    >>> named("orders", "{{ params.table }}", None)
    (QualifiedName(schema=SchemaPath(parts=('main',)), name='orders'),)
    """
    found = []
    for table in tables:
        parts = table if isinstance(table, tuple) else (table,)
        if isinstance(table, str | tuple | QualifiedName) and not any(map(is_template, parts)):
            with suppress(InvalidNameError):  # the task says so itself
                found.append(QualifiedName.of(table))
    return _each_once(found)


def _each_once(names: Iterable[QualifiedName]) -> tuple[QualifiedName, ...]:
    """Return each table by the first of its spellings."""
    found: dict[FoldedName, QualifiedName] = {}
    for name in names:
        found.setdefault(name.folded, name)
    return tuple(found.values())


def flow_of_table(
    table: object,
    at: int | None,
    sources: Mapping[str, object],
    sql: str | None = None,
    source_table: object = None,
) -> Flow:
    """Collect the flow of a row change: its table, and the tables and sources matched with it."""
    targets = named(table)
    tables = zip(("target", "source_table"), (targets, named(source_table)), strict=True)
    own = {name: LineageRead(one) for name, found in tables for one in found}
    return Flow({**own, **reads_of(sources)}, at=at, sql=sql, writes=targets)


def flow_of_ddl(sql: str | Sequence[str]) -> Flow:
    """Collect the tables that DDL statements create or alter; dropped ones are left out."""
    from ..lake.sql.duckdb.ddl import parse_ddl

    texts = [sql] if isinstance(sql, str) else list(sql)
    calls = [one for parsed in parse_ddl(texts, write_version(NEWEST)) for one in parsed.calls]
    tables = (one.arguments[0] for one in calls if not _OF_OTHERS.search(one.method))
    return Flow(sql=";\n".join(texts), writes=named(*tables))


_OF_OTHERS = re.compile("schema$|view$|macro$|^drop_table$")


def flow_of_staged(staged: object) -> Flow:
    """Collect the tables of staged writes, from the results of the tasks that wrote them."""
    given = staged if isinstance(staged, list | tuple) else [staged]
    return Flow(writes=named(*(one.get("table") for one in given if isinstance(one, Mapping))))


def flow_of_sql(sql: str | Sequence[str], sources: Mapping[str, object], schema: str, at: int | None) -> Flow:
    """Collect the tables that Spark SQL reads and writes; only the sources if it cannot be parsed."""
    from ..lake.sql.spark.parse import parse_spark_sql
    from ..lake.sql.spark.statements import ViewStatement

    texts = [sql] if isinstance(sql, str) else list(sql)
    try:
        statements = parse_spark_sql(texts, tuple(sources), SchemaPath.of(schema), nested_schemas=True)
    except DuckLakeError:
        return Flow(reads_of(sources), at=at, sql=";\n".join(texts))
    tables = {folded: name for one in statements for folded, name in one.query.reads.items()}
    names = {folded: f"lake_table_{number}" for number, folded in enumerate(tables)}
    queries, views = [], {}
    for one in statements:
        text = one.query.with_views(names)
        if isinstance(one, ViewStatement):
            views[one.view] = text
        else:
            is_named = one.by_name or one.mode.creates
            queries.append(Query(one.table, text, None if is_named else one.columns))
    reads = {names[folded]: LineageRead(name) for folded, name in tables.items()} | reads_of(sources)
    writes = _each_once(one.table for one in queries)
    return Flow(reads, tuple(queries), views, at, ";\n".join(texts), writes=writes)


def lineage_at_start(operator: LineageOperator) -> Facets | None:
    """Return the ``OperatorLineage`` of a task that is to run: what its arguments name, each by name alone.

    No catalog is asked: the task waits for this, and what a table looks like when the job plans is another
    matter. None: the connection cannot be read, or the arguments cannot.
    """
    from airflow.providers.openlineage.extractors import OperatorLineage

    try:
        namespace, flow = _namespace(operator.ducklake_conn_id), operator.flow()
    except DuckLakeError:
        return None
    inputs = [one.table if one.dataset is None else one.dataset for one in flow.reads.values()]
    return OperatorLineage(
        inputs=[_classes().Dataset(*_dataset(namespace, one)) for one in dict.fromkeys(inputs)],
        outputs=[_classes().OutputDataset(*_dataset(namespace, one)) for one in dict.fromkeys(flow.writes)],
        job_facets=_job_facets(flow),
    )


def lineage_at_end(operator: LineageOperator) -> Facets | None:
    """Return the ``OperatorLineage`` of a task that has ended; None: its lake cannot be asked."""
    from airflow.providers.openlineage.extractors import OperatorLineage

    try:
        with DuckLakeHook(operator.ducklake_conn_id, hook_lineage=False) as hook:
            flow = operator.flow()
            teller = _Teller(hook.lake(), namespace_of(hook.settings()), flow)
            return OperatorLineage(
                inputs=teller.inputs(),
                outputs=teller.outputs(operator.done.snapshot_ids),
                job_facets=_job_facets(flow),
            )
    except DuckLakeError:
        return None


def lineage_at_failure(operator: LineageOperator) -> Facets | None:
    """Return the ``OperatorLineage`` of a failed task: what it was to do, unless its commit had landed."""
    if operator.done.snapshot_ids:
        return lineage_at_end(operator)
    return lineage_at_start(operator)


def _namespace(ducklake_conn_id: str) -> str:
    """Return the namespace of a connection's lake; no credentials for its files are looked up."""
    try:
        connection = BaseHook.get_connection(ducklake_conn_id)
    except AirflowNotFoundException as error:
        raise InvalidInputError(str(error)) from error
    return namespace_of(read_settings(connection, with_storage=False))


def _dataset(namespace: str, of: QualifiedName | tuple[str, str] | None) -> tuple[str, str]:
    return of if isinstance(of, tuple) else (namespace, str(of))


def _job_facets(flow: Flow) -> dict[str, Facets]:
    """Return the SQL of the task, where it has one."""
    return {} if flow.sql is None else {"sql": _classes().SQLJobFacet(query=flow.sql)}


def convert_asset_to_openlineage(asset: Asset, lineage_context: Any) -> Facets | None:  # noqa: ANN401, ARG001 - OpenLineage's
    """Return the dataset of a table's asset; None: its connection cannot be read here.

    Its name is the URI's, in lower case, unless the hook reported the spelling of the catalog.
    """
    conn_id, table = table_of(asset.uri)
    try:
        namespace = _namespace(conn_id)
    except DuckLakeError:
        return None
    return _classes().Dataset(namespace=namespace, name=asset.extra.get(NAME, str(table)))


def _classes() -> Any:  # noqa: ANN401 - OpenLineage's
    """Import the classes of OpenLineage's client that we use."""
    from openlineage.client import event_v2, facet_v2

    return SimpleNamespace(
        Dataset=event_v2.Dataset,
        OutputDataset=event_v2.OutputDataset,
        SQLJobFacet=facet_v2.sql_job.SQLJobFacet,
        SchemaDatasetFacet=facet_v2.schema_dataset.SchemaDatasetFacet,
        SchemaDatasetFacetFields=facet_v2.schema_dataset.SchemaDatasetFacetFields,
        DatasetVersionDatasetFacet=facet_v2.dataset_version_dataset.DatasetVersionDatasetFacet,
        LifecycleStateChange=facet_v2.lifecycle_state_change_dataset.LifecycleStateChange,
        LifecycleStateChangeDatasetFacet=(
            facet_v2.lifecycle_state_change_dataset.LifecycleStateChangeDatasetFacet
        ),
        ColumnLineageDatasetFacet=facet_v2.column_lineage_dataset.ColumnLineageDatasetFacet,
        Fields=facet_v2.column_lineage_dataset.Fields,
        InputField=facet_v2.column_lineage_dataset.InputField,
        OutputStatisticsOutputDatasetFacet=(
            facet_v2.output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet
        ),
    )


class _Teller:
    """Makes datasets of what was read and written."""

    def __init__(self, lake: Lake, namespace: str, flow: Flow) -> None:
        self._facet = _classes()
        self._lake = lake
        self._namespace = namespace
        self._flow = flow
        self._read = {
            name: found
            for name, read in flow.reads.items()
            if read.table is not None and (found := self._table(read.table, flow.at)) is not None
        }

    def inputs(self) -> list[Facets]:
        """Return a dataset of each thing that was read."""
        return [self._input(name, read) for name, read in self._flow.reads.items()]

    def outputs(self, snapshot_ids: Iterable[int]) -> list[Facets]:
        """Return a dataset of each table that the snapshots changed."""
        found: dict[str, RangeReport] = {}
        for snapshot_id in snapshot_ids:
            for one in self._lake.reads.commit_reports(snapshot_id):
                found[one.table] = found[one.table].with_next(one) if one.table in found else one
        return [self._output(one) for one in found.values()]

    def _table(self, table: QualifiedName, at: int | None) -> TableSnapshot | None:
        try:
            return self._lake.table_snapshot(table, at)
        except NotFoundError:  # dropped, or expired
            return None

    def _named(self, name: str, read: LineageRead) -> tuple[str, str]:
        """Return the dataset of what was read, a table as the catalog spells it."""
        found = self._read.get(name)
        return _dataset(self._namespace, read.dataset or (found.name if found is not None else read.table))

    def _input(self, name: str, read: LineageRead) -> Facets:
        namespace, spelled = self._named(name, read)
        if read.table is None:
            return self._facet.Dataset(namespace=namespace, name=spelled)
        found = self._read.get(name)
        facets = self._table_facets(None if found is None else found.schema, self._flow.at)
        return self._facet.Dataset(namespace=namespace, name=spelled, facets=facets)

    def _table_facets(self, schema: TableSchema | None, at: int | None) -> dict[str, Facets]:
        facets = {}
        if schema is not None:
            facets["schema"] = self._facet.SchemaDatasetFacet(
                fields=[self._field(one) for one in schema.columns]
            )
        if at is not None:
            facets["version"] = self._facet.DatasetVersionDatasetFacet(datasetVersion=str(at))
        return facets

    def _field(self, column: Column) -> Facets:
        from ..lake.format.types.ducklake_types import children_of

        fields = [self._field(one) for one in column.children] if children_of(column.type) else []
        return self._facet.SchemaDatasetFacetFields(name=column.name, type=str(column.type), fields=fields)

    def _output(self, report: RangeReport) -> Facets:
        facet, name = self._facet, QualifiedName.of(report.table)
        found = self._table(name, report.to_snapshot)
        schema = None if found is None else found.schema
        facets = self._table_facets(schema, report.to_snapshot)
        change = self._lifecycle(report)
        if change is not None:
            kind = facet.LifecycleStateChange[change]
            facets["lifecycleStateChange"] = facet.LifecycleStateChangeDatasetFacet(lifecycleStateChange=kind)
        columns = self._column_lineage(name, schema)
        if columns:
            facets["columnLineage"] = facet.ColumnLineageDatasetFacet(fields=columns)
        statistics = facet.OutputStatisticsOutputDatasetFacet(rowCount=report.rows_added)
        return facet.OutputDataset(
            namespace=self._namespace,
            name=str(name),
            facets=facets,
            outputFacets={"outputStatistics": statistics},
        )

    def _lifecycle(self, report: RangeReport) -> str | None:
        if report.is_new:
            return "CREATE"
        if self._flow.overwrites:
            return "OVERWRITE"
        return "ALTER" if "schema" in report.changes else None

    def _column_lineage(self, table: QualifiedName, schema: TableSchema | None) -> dict[str, Facets]:
        """Compute the source columns of each column of a table, over all queries that write it."""
        from ..lake.sql.spark.conditions import column_lineage

        if schema is None:
            return {}
        relations = {name: list(one.schema.names) for name, one in self._read.items()}
        relations |= {name: [] for name in self._flow.reads if name not in relations}
        origins: dict[str, dict[tuple[str, str], None]] = {}
        for query in self._flow.queries:
            if query.table.folded != table.folded:
                continue
            found = column_lineage(query.text, relations, self._flow.views)
            targets = query.columns or schema.names
            named = found.items() if query.columns is None else zip(targets, found.values(), strict=False)
            for column, places in named:
                spelled = next((one for one in schema.names if fold(one) == fold(column)), None)
                if spelled is not None:
                    origins.setdefault(spelled, {}).update(dict.fromkeys(places))
        return {
            column: self._facet.Fields(inputFields=[self._place(*one) for one in places])
            for column, places in origins.items()
            if places
        }

    def _place(self, relation: str, column: str) -> Facets:
        namespace, name = self._named(relation, self._flow.reads[relation])
        return self._facet.InputField(namespace=namespace, name=name, field=column)
