"""Who works on the lake: each a process that may die at any moment and goes on from its journal."""

import logging
import os
import random
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_ducklake.hooks.spark_connect_submitter import SparkConnectSubmitter
from airflow_provider_ducklake.hooks.task import CommitIdentity
from airflow_provider_ducklake.lake import errors
from airflow_provider_ducklake.lake.catalog.drafting.transaction import LakeTransaction
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.format.snapshots import CommitInfo, CommitKey
from airflow_provider_ducklake.lake.planning.upkeep.compaction import MergeRule, RewriteRule
from airflow_provider_ducklake.lake.storage.files.filesystem import as_environment
from airflow_provider_ducklake.lake.writes.job_life import Submitter
from airflow_provider_ducklake.lake.writes.run import run
from airflow_provider_ducklake.lake.writes.verb import Commit
from airflow_provider_ducklake.operators.delete import DuckLakeSparkDeleteOperator
from airflow_provider_ducklake.operators.insert import DuckLakeSparkInsertOperator
from airflow_provider_ducklake.operators.merge import DuckLakeSparkMergeOperator
from airflow_provider_ducklake.operators.update import DuckLakeSparkUpdateOperator
from tests.concurrency.arrow_jobs import ArrowSubmitter
from tests.faults.journal import Journal, Op
from tests.faults.model import TABLES, Row, Rows, broken, digest, draw, rows_of
from tests.interop.jobs import compacted_files
from tests.reference.duckdb_lake import DuckLakeConnection, open_lake

FIRST = 1  # the snapshot of new_lake's transaction, which creates the tables
LEAST = 3  # commits of each writer, however slow the machine is
EXPECTED = (
    errors.CommitError,
    errors.CatalogUnavailableError,
    errors.StorageError,
    errors.SparkJobError,
)  # which the next try may cure
INFO = CommitInfo("soak", "as drawn")


@dataclass(frozen=True)
class Place:
    """Where the lake lies: for us and, without what is only ours, for DuckDB."""

    url: str
    attach: str
    data_path: str
    storage_options: dict[str, Any] = field(default_factory=dict)
    libpq: str | None = None  # past the proxy, to end what a dead client left there
    spark_port: int | None = None  # of a Spark Connect server

    def open(self) -> Lake:
        return Lake.connect(self.url, storage_options=self.storage_options)

    def duckdb(self, name: str = "duckdb") -> DuckLakeConnection:
        attach = self.attach if self.libpq is None else f"{self.attach} application_name={name}"
        options = {"busy_timeout": 20_000} if ":sqlite:" in attach else {}
        lake = open_lake(attach, self.data_path, **options)
        lake.sql("SET ducklake_max_retry_count = 100")
        if self.storage_options:
            endpoint = self.storage_options["endpoint_url"].removeprefix("http://")
            lake.sql(
                f"CREATE SECRET (TYPE s3, KEY_ID 'id', SECRET '{self.storage_options['secret']}', "
                f"URL_STYLE 'path', USE_SSL false, ENDPOINT '{endpoint}')"
            )
        return lake


@dataclass(frozen=True)
class Player:
    """One of them; ``until`` is on the machine's monotonic clock."""

    name: str
    number: int
    kind: str
    place: Place
    folder: Path
    seed: int
    until: float
    lives: int = 0

    @property
    def journal(self) -> Journal:
        return Journal(self._path, self.number)

    @property
    def noted_bytes(self) -> int:
        return self._path.stat().st_size if self._path.exists() else 0

    @property
    def _path(self) -> Path:
        return self.folder / f"{self.name}.jsonl"

    @property
    def is_writer(self) -> bool:
        return self.kind in WRITERS

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self.until


def play(player: Player) -> None:
    """Be a player until the time is over, and every operation of it settled."""
    logging.disable()
    os.environ |= as_environment(player.place.storage_options)
    os.environ["AIRFLOW_CONN_SPARK_CONNECT"] = f"spark-connect://127.0.0.1:{player.place.spark_port}"
    journal = player.journal
    try:
        with tempfile.TemporaryDirectory(dir=player.folder) as folder:
            if player.is_writer:
                write(player, journal, WRITERS[player.kind](player.place, Path(folder), player.name))
            else:
                OTHERS[player.kind](player, journal)
    except Exception:  # noqa: BLE001 - the test shows it
        journal.complain(f"{player.name}: {traceback.format_exc()}")
    os._exit(0)  # no thread of a library keeps it


# --- writers ---


class Ours:
    """A program that writes by the library, and keeps the lake open."""

    kinds = ("transfer", "transfer", "pair", "pair", "few", "few", "many", "delete")

    def __init__(self, place: Place, folder: Path, name: str) -> None:  # noqa: ARG002 - as the others
        self.place, self.folder = place, folder
        self._lake: Lake | None = None

    def look(self, op: Op) -> str | None:  # noqa: ARG002 - the key tells
        return None

    def act(self, op: Op) -> str:
        if self._lake is None:
            self._lake = self.place.open()
        with self._lake.transaction("soak", op.kind, commit_key=op.key) as tx:
            if tx.committed is None:
                self._change(tx, op)
        assert tx.committed is not None, f"nothing to commit for {op}"
        return "found done by the key" if tx.committed.is_earlier else "commits"

    def _change(self, tx: LakeTransaction, op: Op) -> None:
        if op.kind == "delete":
            count = tx.delete_rows("events", f"op = {op.target}")
            assert count == op.size, f"{op} found {count} rows"
        for table, rows in rows_of(op).items():
            tx.append_arrow(table, arrow(table, rows))


class Operators:
    """Tasks, each with a lake of its own; their jobs run in the task's process."""

    kinds = ("few", "many", "many", "delete", "update", "update", "merge", "merge")

    def __init__(self, place: Place, folder: Path, name: str) -> None:  # noqa: ARG002 - as the others
        self.place, self.folder = place, folder

    def look(self, op: Op) -> str | None:  # noqa: ARG002 - the key tells
        return None

    def act(self, op: Op) -> str:
        key = CommitKey((op.key,))
        identity = CommitIdentity(key, starts_over=False, extra={"airflow": {"dag_id": "soak"}})
        with self.place.open() as lake:
            commit = Commit(INFO, lake.writes.keyed_commit(key))
            operator = self._operator(op)
            done = run(operator.verb(identity), lake, self._submitter(operator), commit)
        assert done.committed is not None, f"nothing to commit for {op}"
        return "found done by the key" if done.committed.is_earlier else "commits"

    def _submitter(self, operator: Any) -> Submitter:  # noqa: ARG002 - of others
        return ArrowSubmitter()

    def _operator(self, op: Op) -> Any:
        named = {"task_id": op.kind, "table": "events"}
        match op.kind:
            case "delete":
                return DuckLakeSparkDeleteOperator(**named, where=f"op = {op.target}")
            case "update":
                return DuckLakeSparkUpdateOperator(**named, set={"n": "n + 1"}, where=f"op = {op.target}")
            case "merge":
                source = self._file(op, [(op.target, 0, 0, op.size), (-1, -1, -1, -1)])
                return DuckLakeSparkMergeOperator(
                    **named, source=source, on=["op", "k"], when_matched=[{"update": {"n": "target.n + 100"}}]
                )
        return DuckLakeSparkInsertOperator(**named, source=self._file(op, rows_of(op)["events"]))

    def _file(self, op: Op, rows: Sequence[Row]) -> str:
        path = self.folder / f"{op.id}.parquet"
        pq.write_table(arrow("events", rows), path)
        return str(path)


class ConnectedOperators(Operators):
    """Tasks whose jobs run on a Spark Connect server, which outlives them."""

    def _submitter(self, operator: Any) -> Submitter:
        return SparkConnectSubmitter(operator, {}, "spark_connect")


class Client:
    """A DuckDB that connects when it is asked, once more after it was closed."""

    def __init__(self, place: Place, name: str) -> None:
        self._place, self._name = place, name
        self._lake: DuckLakeConnection | None = None

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        if self._lake is None:
            end_backends(self._place, self._name)
            self._lake = self._place.duckdb(self._name)
        return self._lake.sql(text)

    def close(self) -> None:
        lake, self._lake = self._lake, None
        if lake is not None:
            lake.close()


class DuckDB:
    """The reference, which has no keys: what is there tells whether a commit was made."""

    kinds = ("transfer", "transfer", "pair", "pair", "few", "many", "delete", "update")

    def __init__(self, place: Place, folder: Path, name: str) -> None:  # noqa: ARG002 - as the others
        self._lake = Client(place, name)

    def look(self, op: Op) -> str | None:
        """Return how an operation was settled that is seen to be done."""
        lake = self._lake
        lake.close()
        if op.kind in ("delete", "update"):
            found = lake.sql(f"SELECT count(*), min(n), max(n) FROM events WHERE op = {op.target}")[0]
            gone, done = found[0] == 0, found[1:] == (op.was + 1, op.was + 1)
            return "found done by looking" if (gone if op.kind == "delete" else done) else None
        counts = {
            table: (lake.sql(f"SELECT count(*) FROM {table} WHERE op = {op.id}")[0][0], len(rows))
            for table, rows in rows_of(op).items()
        }
        is_there = {count for count, _ in counts.values()} != {0}
        assert not is_there or all(count == wanted for count, wanted in counts.values()), (op, counts)
        return "found done by looking" if is_there else None

    def act(self, op: Op) -> str:
        lake = self._lake
        match op.kind:
            case "delete":
                lake.sql(f"DELETE FROM events WHERE op = {op.target}")
            case "update":
                lake.sql(f"UPDATE events SET n = n + 1 WHERE op = {op.target}")
            case _:
                texts = [
                    f"INSERT INTO {table} VALUES {', '.join(map(str, rows))}"
                    for table, rows in rows_of(op).items()
                ]
                lake.sql("; ".join(["BEGIN", *texts, "COMMIT"]) if len(texts) > 1 else texts[0])
        return "commits"


def end_backends(place: Place, name: str) -> None:
    """End what is left of a client: what it had sent to the server might be done later."""
    if place.libpq is not None:
        with psycopg.connect(place.libpq, autocommit=True) as admin:
            admin.execute(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
                "WHERE application_name = %s AND pid <> pg_backend_pid()",
                [name],
            )


Writer = Ours | Operators | DuckDB
WRITERS: dict[str, Callable[[Place, Path, str], Writer]] = {
    "ours": Ours,
    "operators": Operators,
    "connected operators": ConnectedOperators,
    "duckdb": DuckDB,
}


def arrow(table: str, rows: Sequence[Row]) -> pa.Table:
    names = list(TABLES[table])
    columns = [pa.array(values, pa.int64()) for values in zip(*rows, strict=True)]
    return pa.table(columns, names)


def write(player: Player, journal: Journal, writer: Writer) -> None:
    """Draw operations and do each until it is settled; one that is open was begun in an earlier life."""
    draws = random.Random(f"{player.seed} {player.name} {player.lives} {len(journal.ops)}")
    while True:
        op, is_doubtful = journal.open, True
        if op is None:
            if player.is_over and len(journal.settled) >= LEAST:
                return
            op, is_doubtful = draw(journal, draws, writer.kinds), False
            journal.intend(op)
        settle(op, journal, writer, is_doubtful=is_doubtful)


def settle(op: Op, journal: Journal, writer: Writer, *, is_doubtful: bool) -> None:
    wait = 0.01
    while op.id not in journal.settled:
        try:
            how = writer.look(op) if is_doubtful else None
            journal.settle(op, how or writer.act(op))
        except (*EXPECTED, errors.CommitStateUnknownError, duckdb.Error, psycopg.Error) as error:
            is_doubtful = True
            unknown = isinstance(error, errors.CommitStateUnknownError)
            journal.count(
                "unknown outcomes" if unknown else f"tries again after {type(error).__name__}", error
            )
            time.sleep(wait)
            wait = min(2 * wait, 1.0)


# --- those who write nothing ---


def read_ours(player: Player, journal: Journal) -> None:
    """Read drawn snapshots by the library, each with a lake that is opened for it."""
    draws = random.Random(f"{player.seed} {player.name} {player.lives}")

    def ids() -> list[int]:
        with player.place.open() as lake:
            return [int(one.id) for one in lake.snapshots()]

    def rows(snapshot: int) -> Rows:
        found: Rows = {}
        with player.place.open() as lake:
            for name, columns in TABLES.items():
                table = lake.read_arrow(name, at=snapshot)
                found[name] = list(zip(*(table[one].to_pylist() for one in columns), strict=True))
        return found

    while not player.is_over or not journal.digests:
        read_one(journal, draws, ids, rows, (errors.SnapshotNotFoundError, *EXPECTED))


def read_by_duckdb(player: Player, journal: Journal) -> None:
    """Read drawn snapshots by DuckDB."""
    draws = random.Random(f"{player.seed} {player.name} {player.lives}")

    def ids() -> list[int]:
        return [row[0] for row in client.sql("SELECT snapshot_id FROM ducklake_snapshots('lake')")]

    def rows(snapshot: int) -> Rows:
        return {name: client.sql(f"FROM {name} AT (VERSION => {snapshot})") for name in TABLES}

    with closing(Client(player.place, player.name)) as client:
        while not player.is_over or not journal.digests:
            if not read_one(journal, draws, ids, rows, (duckdb.Error,)):
                client.close()


def read_one(
    journal: Journal,
    draws: random.Random,
    ids: Callable[[], list[int]],
    rows: Callable[[int], Rows],
    expected: tuple[type[Exception], ...],
) -> bool:
    """Read a snapshot and check it; return whether that went well."""
    try:
        there = sorted(one for one in ids() if one >= FIRST)
        snapshot = draws.choice([there[-1], draws.choice(there)])
        found = rows(snapshot)
    except expected as error:
        journal.count(f"reads again after {type(error).__name__}", error)
        return False
    journal.count("reads of snapshots")
    for one in broken(found):
        journal.complain(f"snapshot {snapshot}: {one}")
    journal.saw(snapshot, digest(found))
    return True


def maintain(player: Player, journal: Journal) -> None:
    """Do drawn maintenance: what the operators for it do, without Spark."""
    draws = random.Random(f"{player.seed} {player.name} {player.lives}")
    while not player.is_over:
        name = draws.choice(list(UPKEEP))
        table = draws.choice(list(TABLES))
        try:
            with player.place.open() as lake:
                UPKEEP[name](lake, table, draws)
            journal.count(f"maintenance: {name}")
        except (*EXPECTED, errors.CommitStateUnknownError) as error:
            journal.count(f"maintenance failed by {type(error).__name__}", error)
        time.sleep(draws.uniform(0, 0.3))


def merge_files(lake: Lake, table: str, draws: random.Random) -> None:
    planned = lake.maintenance.plan_merge(table, MergeRule(max_input_files=draws.randint(2, 20)))
    lake.maintenance.commit_compacted(planned.table, compacted_files(lake, planned), INFO)


def rewrite_files(lake: Lake, table: str, draws: random.Random) -> None:
    planned = lake.maintenance.plan_rewrite(table, RewriteRule(draws.choice((0.0, 0.3))))
    lake.maintenance.commit_compacted(planned.table, compacted_files(lake, planned), INFO)


def maintain_by_duckdb(player: Player, journal: Journal) -> None:
    """Do drawn maintenance by the reference's own procedures."""
    draws = random.Random(f"{player.seed} {player.name} {player.lives}")
    with closing(Client(player.place, player.name)) as client:
        while not player.is_over:
            name = draws.choice(list(UPKEEP_BY_DUCKDB))
            try:
                client.sql(UPKEEP_BY_DUCKDB[name])
                journal.count(f"maintenance: {name}")
            except duckdb.Error as error:
                journal.count(f"maintenance failed by {type(error).__name__}", error)
                client.close()
            time.sleep(draws.uniform(0, 0.3))


AGE = timedelta(seconds=20)  # of what goes: longer than a write or a read of the others takes

# Not what moves rows: its merges and rewrites lose inlined deletes committed meanwhile, and its flush
# leaves rows twice (docs/conflicts.md, docs/flush.md).
UPKEEP_BY_DUCKDB = {
    "expire": "CALL ducklake_expire_snapshots('lake', older_than => now() - INTERVAL 10 SECOND)",
    "clean up": "CALL ducklake_cleanup_old_files('lake', older_than => now() - INTERVAL 20 SECOND)",
}

UPKEEP: dict[str, Callable[[Lake, str, random.Random], object]] = {
    "merge files": merge_files,
    "rewrite files": rewrite_files,
    "flush": lambda lake, table, draws: lake.flush_inlined_data(draws.choice((None, table))),
    "expire": lambda lake, _, draws: lake.expire_snapshots(keep_last=draws.choice((1, 3, 10))),
    "expire older ones": lambda lake, _, draws: lake.expire_snapshots(
        older_than=timedelta(seconds=draws.uniform(1, 10))
    ),
    "clean up": lambda lake, _, __: lake.cleanup_old_files(older_than=AGE),
    "orphans": lambda lake, _, __: lake.delete_orphaned_files(older_than=2 * AGE),
}

OTHERS: dict[str, Callable[[Player, Journal], None]] = {
    "reader": read_ours,
    "duckdb reader": read_by_duckdb,
    "maintenance": maintain,
    "duckdb maintenance": maintain_by_duckdb,
}
