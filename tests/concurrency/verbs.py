"""What we and DuckDB can do to the tables ``t`` and ``o`` of a schema, each with its model."""

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_ducklake.hooks.task import CommitIdentity
from airflow_provider_ducklake.lake.catalog.committing.commit import Committer
from airflow_provider_ducklake.lake.catalog.drafting.ddl import apply_ddl
from airflow_provider_ducklake.lake.catalog.drafting.transaction import LakeTransaction
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.catalog.open_lake import OpenLake
from airflow_provider_ducklake.lake.format.snapshots import CommitInfo, CommitKey
from airflow_provider_ducklake.lake.planning.upkeep.compaction import Compaction, MergeRule, RewriteRule
from airflow_provider_ducklake.lake.sql.duckdb.ddl import parse_ddl
from airflow_provider_ducklake.lake.writes.arguments import GivenRows
from airflow_provider_ducklake.lake.writes.insert import Insert, stage
from airflow_provider_ducklake.lake.writes.run import run
from airflow_provider_ducklake.lake.writes.staged import commit_staged
from airflow_provider_ducklake.lake.writes.verb import Commit
from airflow_provider_ducklake.operators.delete import DuckLakeSparkDeleteOperator
from airflow_provider_ducklake.operators.insert import DuckLakeSparkInsertOperator
from airflow_provider_ducklake.operators.merge import DuckLakeSparkMergeOperator
from airflow_provider_ducklake.operators.spark import DuckLakeSparkOperator
from airflow_provider_ducklake.operators.sql import DuckLakeSparkSQLOperator
from airflow_provider_ducklake.operators.update import DuckLakeSparkUpdateOperator
from tests.concurrency import arrow_jobs
from tests.concurrency.serial_model import Model, RefusedError, needs, sql
from tests.interop.jobs import compacted_files

INFO = CommitInfo("test", "verbs")


class PausingCommitter(Committer):
    """Lets something happen before it commits."""

    before: Callable[[], object]

    def commit_planned(self, *arguments: Any, **named: Any) -> Any:
        self.before()
        return super().commit_planned(*arguments, **named)


class PausingLake(Lake):
    """A lake to which something happens once, between the plan of a commit and the commit."""

    meanwhile: Callable[[], object] | None = None

    def __init__(self, lake: OpenLake) -> None:
        committer = PausingCommitter(lake)
        committer.before = self.pause
        super().__init__(lake, committer)

    def pause(self) -> None:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()


@dataclass(frozen=True)
class Pair:
    """Where a verb works: a schema of the lake, ``then`` the snapshot that a restore goes back to."""

    schema: str
    then: int
    files: Path


Ours = Callable[[PausingLake, Pair], object]


@dataclass(frozen=True)
class Verb:
    """What we do, and what it makes of tables."""

    name: str
    act: Ours
    model: Model


@dataclass(frozen=True)
class Statement:
    """What DuckDB does; in its text ``{s}`` is the schema. The model runs the same where none is given."""

    name: str
    text: str
    model: Model | None = None

    @property
    def models(self) -> Model:
        if self.model is not None:
            return self.model
        return sql(*self.text.replace("{s}.", "").split(";"))


# --- rows that are given ---


def _numbered(count: int, n: str, part: str = "chr((97 + i % 3)::INTEGER)", more: str = "") -> str:
    return f"SELECT i AS id, {n} AS n, {part} AS part{more} FROM range(1000, {1000 + count}) r(i)"


def _keys(part: str, *ids: int) -> str:
    values = ", ".join(f"({one})" for one in ids)
    return f"SELECT id, (-id)::INTEGER AS n, '{part}' AS part FROM (VALUES {values}) v(id)"


GIVEN = {
    "few": _numbered(4, "(i + 1)::INTEGER"),
    "many": _numbered(30, "(i + 2)::INTEGER"),
    "of_b": _numbered(4, "(i + 3)::INTEGER", "'b'"),
    "of_a": _numbered(4, "(i + 4)::INTEGER", "'a'"),
    "of_z": _numbered(4, "(i + 5)::INTEGER", "'z'"),
    "wide": _numbered(4, "i + 5000000000"),
    "with_y": _numbered(4, "i::INTEGER", "'a'", ", 'new' AS y"),
    "upsert": _keys("b", 61, 62, 100, 1000, 1001),
    "new_keys": _keys("c", 1000, 1001),
}
ALL = ("id", "n", "part")


def given(rows: str) -> pa.Table:
    """Return rows that are given to a verb: those of a name, or of a query."""
    return duckdb.sql(f"SELECT * REPLACE (id::BIGINT AS id) FROM ({GIVEN.get(rows, rows)})").to_arrow_table()


def source_of(rows: str, folder: Path) -> str:
    """Return a file with such rows."""
    if rows in GIVEN:
        return str(folder / f"{rows}.parquet")
    path = folder / f"{uuid.uuid4()}.parquet"
    pq.write_table(given(rows), path)
    return str(path)


def write_given(folder: Path) -> None:
    """Write them as files, for jobs to read."""
    for name in GIVEN:
        pq.write_table(given(name), folder / f"{name}.parquet")


MERGE = "MERGE INTO {} AS target USING ({}) AS source ON target.id = source.id"


def insert_of(name: str, table: str = "t") -> str:
    return f"INSERT INTO {table} BY NAME ({GIVEN[name]})"


# --- operators, whose jobs this process runs ---


def operate(operator: Any, lake: Lake) -> dict[str, Any]:
    """Plan, run the job and commit, as ``execute`` does."""
    key = CommitKey((str(uuid.uuid4()),))
    airflow = {"dag_id": key.names[0], "task_id": "verb", "map_index": -1, "namespace": "test"}
    identity = CommitIdentity(key, starts_over=False, extra={"airflow": airflow})
    commit = Commit(INFO, lake.writes.keyed_commit(key))
    return run(operator.verb(identity), lake, arrow_jobs.ArrowSubmitter(), commit).summary


def insert(name: str, rows: str, model: Model, table: str = "t", **arguments: Any) -> Verb:
    def act(lake: PausingLake, pair: Pair) -> None:
        source = source_of(rows, pair.files)
        operate(
            DuckLakeSparkInsertOperator(
                task_id="verb", table=f"{pair.schema}.{table}", source=source, **arguments
            ),
            lake,
        )

    return Verb(name, act, model)


def merge(name: str, rows: str | None, model: str, **arguments: Any) -> Verb:
    def act(lake: PausingLake, pair: Pair) -> None:
        if rows is None:
            source = {"source_table": f"{pair.schema}.o"}
        else:
            source = {"source": source_of(rows, pair.files)}
        table = f"{pair.schema}.t"
        operate(
            DuckLakeSparkMergeOperator(task_id="verb", table=table, on=["id"], **source, **arguments), lake
        )

    using = "FROM o" if rows is None else GIVEN.get(rows, rows)
    return Verb(name, act, sql(f"{MERGE.format('t', using)} {model}"))


def row_change(name: str, kind: type[DuckLakeSparkOperator], model: str, **arguments: Any) -> Verb:
    def act(lake: PausingLake, pair: Pair) -> None:
        operate(kind(task_id="verb", table=f"{pair.schema}.t", **arguments), lake)  # type: ignore[call-arg]

    return Verb(name, act, sql(model))


def query(name: str, text: str, model: Model, **arguments: Any) -> Verb:
    def act(lake: PausingLake, pair: Pair) -> None:
        named = {
            key: [one.replace("{s}", pair.schema) for one in value] if key == "incremental" else value
            for key, value in arguments.items()
        }
        operate(DuckLakeSparkSQLOperator(task_id="verb", sql=text.replace("{s}", pair.schema), **named), lake)

    return Verb(name, act, model)


def staged(lake: PausingLake, pair: Pair) -> None:
    """Stage a write, and commit it later."""
    rows = GivenRows(source=str(pair.files / "few.parquet"))
    summary = stage(Insert(f"{pair.schema}.t", rows), lake, arrow_jobs.DocumentingSubmitter())
    lake.pause()
    commit_staged(
        lake, summary["staged"], Commit(INFO, lake.writes.keyed_commit(CommitKey((str(uuid.uuid4()),))))
    )


# --- the library ---


def transaction(name: str, act: Callable[[LakeTransaction, str], object], model: Model) -> Verb:
    def transact(lake: PausingLake, pair: Pair) -> None:
        with lake.transaction() as tx:
            act(tx, pair.schema)

    return Verb(name, transact, model)


def ddl(text: str, model: Model | None = None) -> Verb:
    """Return a verb for statements that our DDL and DuckDB read alike."""
    made = Statement(text.replace("{s}.", ""), text, model)
    return transaction(
        f"our {made.name}", lambda tx, s: apply_ddl(tx, parse_ddl(text.replace("{s}", s))), made.models
    )


def compaction(name: str, plan: Callable[[Lake, str], Compaction], *, early: bool) -> Verb:
    """Return a verb that others interrupt before it looks at its files again, or behind that."""

    def act(lake: PausingLake, pair: Pair) -> None:
        planned = plan(lake, f"{pair.schema}.t")
        files = compacted_files(lake, planned)
        if early:
            lake.pause()
        lake.maintenance.commit_compacted(planned.table, files, INFO)

    return Verb(name, act, nothing_to("t"))


def nothing_to(table: str) -> Model:
    """Change nothing, but need the table."""
    return sql(f"FROM {table} LIMIT 0")


def restored(connection: duckdb.DuckDBPyConnection) -> None:
    """Bring back the table of then, where its snapshot has not expired."""
    if connection.execute("FROM duckdb_tables() WHERE table_name = '_expired'").fetchall():
        raise RefusedError("expired")
    connection.execute("DROP TABLE IF EXISTS t2")
    connection.execute("CREATE OR REPLACE TABLE t AS FROM _then")


def widened(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute("ALTER TABLE t ALTER n TYPE BIGINT")
    connection.execute(insert_of("wide"))


def with_y(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute("ALTER TABLE t ADD COLUMN IF NOT EXISTS y VARCHAR")
    connection.execute(insert_of("with_y"))


def evolving(*columns: str, then: Model) -> Model:
    """Refuse what evolution does not mend: nothing but a table that is not there."""

    def run(connection: duckdb.DuckDBPyConnection) -> None:
        found = [one[0] for one in connection.execute("FROM t LIMIT 0").description]
        for column in columns:
            if column not in found:
                type_ = {"n": "INTEGER", "id": "BIGINT", "part": "VARCHAR"}[column]
                connection.execute(f"ALTER TABLE t ADD COLUMN {column} {type_}")
        then(connection)

    return run


def created(connection: duckdb.DuckDBPyConnection) -> None:
    """Insert into c, and make it where it is not there."""
    connection.execute(f"CREATE TABLE IF NOT EXISTS c AS FROM ({GIVEN['few']}) LIMIT 0")
    needs("c", *ALL, then=sql(insert_of("few", "c")))(connection)


def partitioned_by_part(then: Model) -> Model:
    """Refuse a table that has other partition keys by now, or none, as its partitions cannot be told."""

    def run(connection: duckdb.DuckDBPyConnection) -> None:
        if connection.execute("FROM duckdb_tables() WHERE table_name = '_other_keys'").fetchall():
            raise RefusedError("other partition keys")
        then(connection)

    return run


PLAIN = partial(needs, "t", *ALL)
OTHER_KEYS = sql("FROM t LIMIT 0", "CREATE TABLE _other_keys (i INTEGER)")
NEW = "SELECT id, n, 'c' FROM o WHERE id NOT IN (SELECT id FROM t)"
NEW_IN_LAKE = "SELECT id, n, 'c' FROM {s}.o WHERE id NOT IN (SELECT id FROM {s}.t)"

UPDATE = {"n": "source.n"}
NEW_ROW = {"id": "source.id", "n": "source.n", "part": "source.part"}
INSERTS = "WHEN NOT MATCHED THEN INSERT (id, n, part) VALUES (source.id, source.n, source.part)"

VERBS: tuple[Verb, ...] = (
    insert("insert", "few", PLAIN(then=sql(insert_of("few")))),
    insert("insert many", "many", PLAIN(then=sql(insert_of("many")))),
    insert("overwrite", "few", PLAIN(then=sql("DELETE FROM t", insert_of("few"))), mode="overwrite"),
    insert(
        "overwrite partitions",
        "of_b",
        partitioned_by_part(PLAIN(then=sql("DELETE FROM t WHERE part = 'b'", insert_of("of_b")))),
        mode="overwrite_partitions",
    ),
    insert(
        "overwrite where",
        "of_a",
        PLAIN(then=sql("DELETE FROM t WHERE part = 'a' AND n < 2000", insert_of("of_a"))),
        overwrite_where="part = 'a' AND n < 2000",
    ),
    insert(
        "overwrite where nothing is",
        "of_z",
        PLAIN(then=sql("DELETE FROM t WHERE part = 'z'", insert_of("of_z"))),
        overwrite_where="part = 'z'",
    ),
    insert("insert and create", "few", created, table="c", create_table=True),
    insert("insert and add columns", "with_y", evolving(*ALL, then=with_y), schema_evolution="add_columns"),
    insert("insert and widen", "wide", evolving(*ALL, then=widened), schema_evolution="add_and_widen"),
    row_change(
        "delete",
        DuckLakeSparkDeleteOperator,
        "DELETE FROM t WHERE id IN (61, 100, 1000)",
        where="id IN (61, 100, 1000)",
    ),
    row_change(
        "delete many", DuckLakeSparkDeleteOperator, "DELETE FROM t WHERE n % 2 = 0", where="n % 2 = 0"
    ),
    row_change(
        "update",
        DuckLakeSparkUpdateOperator,
        "UPDATE t SET n = n + 7 WHERE id > 60",
        set={"n": "n + 7"},
        where="id > 60",
    ),
    row_change(
        "update none",
        DuckLakeSparkUpdateOperator,
        "UPDATE t SET n = 7 WHERE id = 1000",
        set={"n": "7"},
        where="id = 1000",
    ),
    merge(
        "merge, matched",
        "upsert",
        "WHEN MATCHED THEN UPDATE SET n = source.n",
        when_matched=[{"update": UPDATE}],
    ),
    merge("merge, not matched", "upsert", INSERTS, when_not_matched=[{"insert": NEW_ROW}]),
    merge("merge, new keys", "new_keys", INSERTS, when_not_matched=[{"insert": NEW_ROW}]),
    merge(
        "merge, both",
        "upsert",
        f"WHEN MATCHED THEN UPDATE SET n = source.n {INSERTS}",
        when_matched=[{"update": UPDATE}],
        when_not_matched=[{"insert": NEW_ROW}],
    ),
    merge(
        "merge, new keys, both",
        "new_keys",
        f"WHEN MATCHED THEN DELETE {INSERTS}",
        when_matched=[{"delete": True}],
        when_not_matched=[{"insert": NEW_ROW}],
    ),
    merge(
        "merge, by source",
        "upsert",
        f"WHEN NOT MATCHED BY SOURCE AND target.n > 80 THEN DELETE {INSERTS}",
        when_not_matched_by_source=[{"condition": "target.n > 80", "delete": True}],
        when_not_matched=[{"insert": NEW_ROW}],
    ),
    merge(
        "merge of o",
        None,
        "WHEN MATCHED THEN UPDATE SET n = source.n + 1 "
        "WHEN NOT MATCHED THEN INSERT (id, n, part) VALUES (source.id, source.n, 'c')",
        when_matched=[{"update": {"n": "source.n + 1"}}],
        when_not_matched=[{"insert": {"id": "source.id", "n": "source.n", "part": "'c'"}}],
    ),
    query(
        "query of its own table",
        f"INSERT INTO {{s}}.t (id, n, part) {NEW_IN_LAKE}",
        PLAIN(then=sql(f"INSERT INTO t (id, n, part) {NEW}")),
    ),
    query(
        "query of another table",
        "INSERT INTO {s}.t (id, n, part) SELECT id + 3000, n, 'a' FROM {s}.o",
        PLAIN(then=sql("INSERT INTO t (id, n, part) SELECT id + 3000, n, 'a' FROM o")),
    ),
    query(
        "overwrite by its own rows",
        "INSERT OVERWRITE {s}.t SELECT id, n + 1 AS n, part FROM {s}.t WHERE id < 1000",
        sql(
            "CREATE TABLE _new AS SELECT id, n + 1, part FROM t WHERE id < 1000",
            "DELETE FROM t",
            "INSERT INTO t FROM _new",
        ),
    ),
    query(
        "overwrite by another table",
        "INSERT OVERWRITE {s}.t SELECT id, n, 'a' AS part FROM {s}.o",
        sql("DELETE FROM t", "INSERT INTO t SELECT id, n, 'a' FROM o"),
    ),
    query(
        "replace by its own rows",
        "CREATE OR REPLACE TABLE {s}.t AS SELECT id, n FROM {s}.t WHERE id > 10",
        sql("CREATE OR REPLACE TABLE t AS SELECT id, n FROM t WHERE id > 10"),
    ),
    query(
        "replace by another table",
        "CREATE OR REPLACE TABLE {s}.t AS SELECT id, n FROM {s}.o",
        sql("CREATE OR REPLACE TABLE t AS SELECT id, n FROM o"),
    ),
    query(
        "query that creates",
        "CREATE TABLE {s}.c AS SELECT id FROM {s}.t",
        sql("CREATE TABLE c AS SELECT id FROM t"),
    ),
    query(
        "query of changes",
        "INSERT INTO {s}.t (id, n, part) SELECT id + 4000, n, 'b' FROM {s}.o WHERE change_type = 'insert'",
        PLAIN(then=sql("INSERT INTO t (id, n, part) SELECT id + 4000, n, 'b' FROM o")),
        incremental=["{s}.o"],
    ),
    Verb("staged write", staged, PLAIN(then=sql(insert_of("few")))),
    transaction(
        "append few", lambda tx, s: tx.append_arrow(f"{s}.t", given("few")), PLAIN(then=sql(insert_of("few")))
    ),
    transaction(
        "append many",
        lambda tx, s: tx.append_arrow(f"{s}.t", given("many")),
        PLAIN(then=sql(insert_of("many"))),
    ),
    transaction(
        "append to o",
        lambda tx, s: tx.append_arrow(f"{s}.o", given("many").select(["id", "n"])),
        sql(f"INSERT INTO o BY NAME SELECT id, n FROM ({GIVEN['many']})"),
    ),
    transaction(
        "delete rows",
        lambda tx, s: tx.delete_rows(f"{s}.t", "n > 60 AND n < 80 OR id = 101"),
        sql("DELETE FROM t WHERE n > 60 AND n < 80 OR id = 101"),
    ),
    transaction(
        "delete rows and append",
        lambda tx, s: (tx.delete_rows(f"{s}.t", "id >= 1000"), tx.append_arrow(f"{s}.t", given("few"))),
        PLAIN(then=sql("DELETE FROM t WHERE id >= 1000", insert_of("few"))),
    ),
    ddl("TRUNCATE {s}.t"),
    ddl("ALTER TABLE {s}.t ADD COLUMN x INTEGER DEFAULT 7"),
    ddl("ALTER TABLE {s}.t DROP COLUMN n"),
    ddl("ALTER TABLE {s}.t RENAME COLUMN n TO m"),
    ddl("ALTER TABLE {s}.t ALTER COLUMN n TYPE BIGINT"),
    ddl("ALTER TABLE {s}.t ALTER COLUMN n SET NOT NULL"),
    ddl("ALTER TABLE {s}.t ALTER COLUMN n SET DEFAULT 3"),
    ddl("ALTER TABLE {s}.t SET PARTITIONED BY (bucket(4, id))", OTHER_KEYS),
    ddl("ALTER TABLE {s}.t RESET PARTITIONED BY", OTHER_KEYS),
    ddl("ALTER TABLE {s}.t RENAME TO t2"),
    ddl("DROP TABLE {s}.t"),
    ddl("DROP TABLE {s}.t; CREATE TABLE {s}.t (id BIGINT)"),
    ddl("CREATE TABLE {s}.c (id BIGINT)"),
    ddl(
        "DROP SCHEMA {s} CASCADE",
        sql(
            *("DROP TABLE IF EXISTS t", "DROP TABLE IF EXISTS t2", "DROP TABLE IF EXISTS c", "DROP TABLE o"),
            "CREATE VIEW c AS SELECT 1",  # no table can be made in a schema that is gone
        ),
    ),
    compaction("merge files", lambda lake, t: lake.maintenance.plan_merge(t, MergeRule()), early=True),
    compaction("merge files, late", lambda lake, t: lake.maintenance.plan_merge(t, MergeRule()), early=False),
    compaction(
        "rewrite files", lambda lake, t: lake.maintenance.plan_rewrite(t, RewriteRule(0.0)), early=True
    ),
    compaction(
        "rewrite files, late", lambda lake, t: lake.maintenance.plan_rewrite(t, RewriteRule(0.0)), early=False
    ),
    Verb("flush", lambda lake, pair: lake.flush_inlined_data(f"{pair.schema}.t"), nothing_to("t")),
    Verb("restore", lambda lake, pair: lake.restore(f"{pair.schema}.t", at=pair.then), restored),
)

CALL = "table_name => 't', schema => '{s}'"
STATEMENTS: tuple[Statement, ...] = (
    Statement("INSERT few", "INSERT INTO {s}.t (id, n, part) VALUES (1000, 1, 'a'), (1001, 2, 'b')"),
    Statement("INSERT NULL", "INSERT INTO {s}.t (id) VALUES (1000)"),
    Statement("INSERT many", "INSERT INTO {s}.t (id, n, part) SELECT i, 5, 'b' FROM range(1000, 1030) r(i)"),
    Statement("INSERT unknown keys", f"INSERT INTO {{s}}.t (id, n, part) {NEW_IN_LAKE}"),
    Statement("INSERT into o", "INSERT INTO {s}.o VALUES (1002, 1), (67, 2)"),
    Statement("UPDATE few", "UPDATE {s}.t SET n = 9 WHERE id IN (62, 101)"),
    Statement("UPDATE many", "UPDATE {s}.t SET n = n + 100 WHERE part = 'c'"),
    Statement("UPDATE o", "UPDATE {s}.o SET n = n + 100"),
    Statement("DELETE few", "DELETE FROM {s}.t WHERE id IN (62, 81)"),
    Statement("DELETE inlined", "DELETE FROM {s}.t WHERE id = 100"),
    Statement("DELETE many", "DELETE FROM {s}.t WHERE n BETWEEN 40 AND 85"),
    Statement("DELETE a partition", "DELETE FROM {s}.t WHERE part = 'a'"),
    Statement("DELETE from o", "DELETE FROM {s}.o WHERE id < 64"),
    Statement(
        "MERGE",
        f"{MERGE.format('{s}.t', GIVEN['upsert'])} WHEN MATCHED THEN UPDATE SET n = source.n {INSERTS}",
    ),
    Statement("MERGE new keys", f"{MERGE.format('{s}.t', GIVEN['new_keys'])} {INSERTS}"),
    Statement("TRUNCATE", "TRUNCATE {s}.t"),
    Statement("ADD COLUMN", "ALTER TABLE {s}.t ADD COLUMN x INTEGER DEFAULT 7"),
    Statement("DROP COLUMN", "ALTER TABLE {s}.t DROP COLUMN n"),
    Statement("RENAME COLUMN", "ALTER TABLE {s}.t RENAME COLUMN n TO m"),
    Statement("retype", "ALTER TABLE {s}.t ALTER n TYPE BIGINT"),
    Statement("SET PARTITIONED BY", "ALTER TABLE {s}.t SET PARTITIONED BY (bucket(4, id))", OTHER_KEYS),
    Statement("DROP and CREATE", "BEGIN; DROP TABLE {s}.t; CREATE TABLE {s}.t (id BIGINT); COMMIT"),
    Statement(
        "CREATE OR REPLACE",
        "CREATE OR REPLACE TABLE {s}.t AS FROM {s}.t WHERE id > 20",
        sql("CREATE OR REPLACE TABLE t AS FROM t WHERE id > 20", "CREATE TABLE _other_keys (i INTEGER)"),
    ),
    Statement("RENAME", "ALTER TABLE {s}.t RENAME TO t2"),
    Statement("DROP", "DROP TABLE {s}.t"),
    Statement("CREATE c", "CREATE TABLE {s}.c AS SELECT id, n, part FROM {s}.t WHERE id = 62"),
    Statement(
        "flush",
        f"CALL ducklake_flush_inlined_data('lake', {CALL.replace('schema', 'schema_name')})",
        nothing_to("t"),
    ),
    Statement(
        "merge_adjacent", "CALL ducklake_merge_adjacent_files('lake', 't', schema => '{s}')", nothing_to("t")
    ),
    Statement(
        "rewrite",
        "CALL ducklake_rewrite_data_files('lake', 't', schema => '{s}', delete_threshold => 0)",
        nothing_to("t"),
    ),
    Statement(
        "expire",
        "CALL ducklake_expire_snapshots('lake', older_than => now()::TIMESTAMPTZ + INTERVAL 1 DAY)",
        sql("CREATE TABLE _expired (i INTEGER)"),
    ),
)
