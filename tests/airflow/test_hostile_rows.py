"""Whoever writes the catalog puts any value into rows of our own tables: nothing happens outside of the lake.

Each verb that reads such a row answers or refuses it. Outside of the data path no file changes, the cluster's
manager is told to end no other application, and no process is started or ended.
"""

import json
import random
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import pyarrow.parquet as pq
import pytest

from airflow_provider_ducklake.hooks.clusters import ClusterManager, Standalone, Yarn
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.catalog.ledger.consumers import Consumed
from airflow_provider_ducklake.lake.catalog.ledger.jobs import ensure_document_key
from airflow_provider_ducklake.lake.errors import SparkJobError, UntrustedValueError
from airflow_provider_ducklake.lake.format.schema import TableSchema
from airflow_provider_ducklake.lake.format.snapshots import (
    CommitInfo,
    CommitKey,
    Consumer,
    Consumption,
    OnClear,
)
from airflow_provider_ducklake.lake.planning.writing.write import WritePlan
from airflow_provider_ducklake.lake.spark.job import io as job_io
from airflow_provider_ducklake.lake.spark.job.request import Dataset, DatasetSource, JobRequest, job_directory
from airflow_provider_ducklake.lake.storage.files import writing
from airflow_provider_ducklake.lake.transaction.changes import CommentOnTable
from airflow_provider_ducklake.lake.writes import job_life, resume, staged
from airflow_provider_ducklake.lake.writes.arguments import GivenRows
from airflow_provider_ducklake.lake.writes.compaction import Compact, compact
from airflow_provider_ducklake.lake.writes.insert import Insert
from airflow_provider_ducklake.lake.writes.job_life import DetachedSubmitter, JobDeferred, JobLife
from airflow_provider_ducklake.lake.writes.run import run
from airflow_provider_ducklake.lake.writes.verb import Attempt, Commit, Results
from tests.concurrency.arrow_jobs import ArrowSubmitter, done
from tests.interop.jobs import rows_of, stage
from tests.interop.lakes import alone
from tests.interop.odd import Original, Outcomes, Verb
from tests.reference.catalogs import file_catalog

DAMAGES = 30  # of all that there are, which a run at full size tries
VICTIMS = ("worker/dags", "worker/dags/ducklake-x", "dags")
KEY, NIGHTLY = CommitKey(("namespace", "dag", "run", "insert", -1, 0)), CommitKey(("tag",))
ANOTHER, CONSUMER = CommitKey(("another",)), Consumer("reports")
INFO = CommitInfo("test", "hostile rows")
# Verbs that end otherwise even so: the cluster takes no other job.
EXPECTED = {"insert into another": {"SparkJobError"}, "compact": {"SparkJobError"}}
OURS = {"yarn": "application_1795644167263_0002", "standalone": "driver-20261125212241-0000"}
OTHERS = {"yarn": "application_1795644167263_0001", "standalone": "driver-20261125212241-0001"}


class Server:
    """A manager's server with an application that is marked as a job's, and another one."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str]] = []
        self.job_id = ""
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                self.rfile.read(length)
                server.requests.append((self.command, self.path))
                body = json.dumps(server.answer(self.command, self.path)).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815 - the names that it looks for

            def log_message(self, *_arguments: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def answer(self, method: str, target: str) -> dict[str, Any]:
        path, query = urlsplit(target).path, parse_qs(urlsplit(target).query)
        has_ended = any(one != "GET" for one, _ in self.requests)
        if path.startswith("/v1/submissions/"):
            action = "SubmissionStatusResponse" if method == "GET" else "KillSubmissionResponse"
            return {"action": action, "success": True, "driverState": "KILLED" if has_ended else "RUNNING"}
        if "applicationTags" in query:
            is_ours = query["applicationTags"] == [f"ducklake-{self.job_id}"]
            return {"apps": {"app": [{"id": OURS["yarn"]}]} if is_ours else None}
        return {"app": {"state": "KILLED" if has_ended else "RUNNING", "finalStatus": "UNDEFINED"}}

    def effects(self, kind: str) -> list[tuple[str, str]]:
        """Return the requests that neither look for an application nor end the job's own."""
        ours, asked = OURS[kind], set[str]()
        if kind == "yarn":
            apps = "/ws/v1/cluster/apps"
            asked = {f"{apps}/{OTHERS[kind]}", f"{apps}/{ours}"}
            ends = ("PUT", f"{apps}/{ours}/state")
        else:
            asked = {f"/v1/submissions/status/{one}" for one in (ours, OTHERS[kind])}
            ends = ("POST", f"/v1/submissions/kill/{ours}")
        return [
            (method, path)
            for method, path in self.requests
            if (method, path) != ends
            and not (
                method == "GET" and (path in asked or path.startswith("/ws/v1/cluster/apps?applicationTags="))
            )
        ]


@dataclass
class Cluster(ArrowSubmitter, DetachedSubmitter):
    """A cluster with a manager: it takes a job if that ``goes_on`` when its task ends."""

    manager: ClusterManager
    application: str
    goes_on: bool = False
    cluster = "here"

    def start(self, life: JobLife) -> None:
        if not self.goes_on:
            raise SparkJobError("the cluster takes nothing more")
        job_io.write_request(life.request, life.lake.opened.storage_options)
        job_io.write_results(life.request, done(life.request))
        life.named(self.application)

    def outcome(self, life: JobLife) -> Results:
        job = life.submitted
        assert job is not None
        if self.goes_on:
            raise JobDeferred(job)
        assert job.application is not None
        self.manager.status(job.application)
        life.ended()
        return Results.of(job_io.read_outcome(life.request, life.lake.opened.storage_options))

    def find(self, job_id: str) -> str | None:
        return self.manager.find(job_id)

    def runs(self, application: str, job_id: str) -> bool:
        return self.manager.runs(application, job_id)

    def stop(self, application: str) -> None:
        self.manager.stop(application)


@dataclass
class Scene:
    """A lake that a task is to write to, beside what is none of its business."""

    original: Original
    server: Server
    kind: str
    source: str
    job_id: str = ""
    staged_uri: str = ""

    @property
    def area(self) -> Path:
        return self.original.area

    @property
    def database(self) -> Path:
        return Path(self.original.catalog.sqlalchemy_url.removeprefix("sqlite:///"))

    @property
    def cluster(self) -> Cluster:
        manager = Yarn(self.server.url) if self.kind == "yarn" else Standalone((self.server.url,))
        return Cluster(manager, OURS[self.kind])

    def outside(self) -> dict[str, bytes]:
        """Return the files that are neither the lake's nor its catalog's."""
        data = Path(self.original.catalog.data_path)
        files = (one for one in self.area.rglob("*") if one.is_file() and data not in one.parents)
        return {str(one): one.read_bytes() for one in files if not one.name.startswith(self.database.name)}

    def change(self, statement: str, values: Any = ()) -> None:
        """Change the catalog as its hostile writer."""
        with closing(sqlite3.connect(self.database)) as connection, connection:
            connection.execute(statement, values)


def insert(lake: Lake, scene: Scene, cluster: Cluster, try_id: str = "try 2", table: str = "t") -> object:
    """Do what a task does whose earlier try has submitted the job."""
    commit = Commit(INFO, lake.writes.keyed_commit(KEY), attempt=Attempt(KEY, try_id))
    return run(Insert(table, GivenRows(source=scene.source)), lake, cluster, commit)


def append(lake: Lake, key: CommitKey, on_clear: OnClear) -> object:
    """Append once, in place of what the key's earlier generation had added."""
    keyed = lake.writes.keyed_commit(key, on_clear)
    table = lake.table_snapshot("o")
    changes = lake.writes.replaced_rows(keyed.seen, table.snapshot.id)
    comment = CommentOnTable(table.table_id, table.name, f"{uuid4()}")
    return lake.committer.commit(table.snapshot.id, [*changes, comment], INFO, keyed=keyed)


def consume(lake: Lake) -> object:
    """Consume what the consumer has not."""
    known, table = lake.writes.consumptions(CONSUMER, KEY), lake.table_snapshot("t")
    after, upto = max((one.upto for one in known), default=None), lake.current_snapshot().id
    ranges = (Consumption(table.table_id, after, upto, ANOTHER.digest, 1),)
    return lake.committer.commit_change_sets([], INFO, consumed=Consumed(CONSUMER, ranges, known))


def seal(lake: Lake) -> None:
    """Learn the key by which documents are sealed, and seal one."""
    nowhere = f"/nowhere/{uuid4()}/"
    writing.learn(nowhere, ensure_document_key(lake.opened.catalog, writing.new_key()))
    writing.sealed(f"{nowhere}x", b"x")


def verbs_of(scene: Scene) -> dict[str, dict[str, Verb]]:
    """Return the verbs that read each table of ours."""
    attempt, cluster = Attempt(KEY, "try 2"), scene.cluster
    tried = [scene.job_id, str(uuid4())]
    jobs: dict[str, Verb] = {
        "insert": lambda lake: insert(lake, scene, cluster),
        "insert into another": lambda lake: insert(lake, scene, cluster, table="o"),
        "compact": lambda lake: compact(Compact.merging("t"), lake, cluster, INFO, tried, attempt=attempt),
        "give up": lambda lake: resume.discard_all(lake, cluster, attempt),
        "forget": lambda lake: lake.jobs.forget_submitted_of(attempt.key),
        "commit": lambda lake: staged.commit_staged(
            lake, scene.staged_uri, Commit(INFO, lake.writes.keyed_commit(ANOTHER))
        ),
        "discard": lambda lake: staged.discard(lake, [scene.staged_uri]),
        "tidy up": lambda lake: staged.tidy_up(lake, scene.staged_uri),
        "orphans": lambda lake: lake.delete_orphaned_files(older_than=timedelta(0), sole_owner=True),
    }
    cleared = CommitKey(NIGHTLY.names, 3)
    commits: dict[str, Verb] = {
        "once": lambda lake: append(lake, NIGHTLY, OnClear.APPEND),
        "cleared": lambda lake: append(lake, cleared, OnClear.REPLACE),
        "first try": lambda lake: lake.writes.keyed_commit(NIGHTLY, starts_over=True),
        "insert": jobs["insert"],
    }
    return {
        "airflow_ducklake_application": jobs,
        "airflow_ducklake_job": jobs,
        "airflow_ducklake_commit": commits,
        "airflow_ducklake_consumer": {"consume": consume},
        "airflow_ducklake_document_key": {"seal": seal},
        "airflow_ducklake_mark": {"orphans": jobs["orphans"]},
        "airflow_ducklake_restore": {
            "cleared": commits["cleared"],
            "restore": lambda lake: lake.restore("t", at=3),
        },
        "airflow_ducklake_tag": {
            "tags": lambda lake: lake.tags(),
            "read": lambda lake: lake.read_arrow("t", at="tag:q3"),
            "tag": lambda lake: lake.tag("q3", replace=True),
            "untag": lambda lake: lake.untag("q3"),
            "expire": lambda lake: lake.expire_snapshots(keep_last=1),
        },
        "airflow_ducklake_watermark": {
            "read": lambda lake: lake.writes.watermark(CONSUMER),
            "note": lambda lake: lake.writes.note_watermark(CONSUMER, "{}"),
        },
    }


def made(folder: Path, server: Server, kind: str) -> Scene:
    """Make a lake in which each table of ours has a row, and a job that goes on on the cluster."""
    catalog = file_catalog("sqlite", folder / "area")
    scene = Scene(Original(catalog), server, kind, str(folder / "rows.parquet"))
    pq.write_table(rows_of(1, 50), scene.source)
    for victim in VICTIMS:
        (scene.area / victim).mkdir(parents=True)
        (scene.area / victim / "important.py").write_text("x")
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        with lake.transaction() as tx:
            for name in ("t", "o"):
                tx.create_table(name, {"id": "int64"})
        lake.set_option("data_inlining_row_limit", 0)
        for start in (10, 20):
            lake.append_arrow("t", rows_of(*range(start, start + 8)))
        lake.append_arrow("o", rows_of(3), commit_key=NIGHTLY)
        lake.restore("t", at=3)
        lake.append_arrow("t", rows_of(40))
        lake.tag("q3")
        lake.writes.note_watermark(CONSUMER, "{}")
        consume(lake)
        ensure_document_key(lake.opened.catalog, writing.new_key())
        scene.staged_uri = job_io.stage_uri(stage(lake, "o", rows_of(5)).directory)
        with pytest.raises(JobDeferred) as going:
            insert(lake, scene, replace(scene.cluster, goes_on=True), "try 1")
        scene.job_id = server.job_id = going.value.job.job_id
        lake.delete_orphaned_files(older_than=timedelta(0), sole_owner=True)
    scene.original.keep()
    return scene


@pytest.fixture(scope="module", params=[pytest.param("yarn", marks=pytest.mark.cluster), "standalone"])
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    server = Server()
    yield made(tmp_path_factory.mktemp("rows"), server, request.param)
    server.http.shutdown()
    server.http.server_close()


def values_for(scene: Scene) -> list[Any]:
    """Return what a hostile writer puts into a field of any column."""
    data, job, victim = scene.original.catalog.data_path, scene.job_id, scene.area / "worker" / "dags"
    return [
        *(
            None,
            "",
            "x",
            0,
            -1,
            7,
            2**63 - 1,
            1.5,
            b"\x00\xff",
            "a\x00b",
            "x" * 100_000,
            "[" * 5_000,
            "%",
            "null",
        ),
        *(
            "x/../../dags",
            "../../../json?x=",
            f"{OURS[scene.kind]}/../x",
            OTHERS[scene.kind],
            "http://127.0.0.1:9/",
        ),
        *(
            f"{victim}/",
            f"{victim}/ducklake-{job}/",
            f"{victim}/ducklake-x/../../dags/",
            "/",
            "s3://elsewhere/x/",
        ),
        *(f"{data}../worker/dags/ducklake-{job}/", f"file://{victim}/", f"{data}main/t/", data, "~", "$HOME"),
        *(
            KEY.digest,
            NIGHTLY.digest,
            ANOTHER.digest,
            CONSUMER.digest,
            job,
            str(uuid4()),
            "2020-01-01 00:00:00",
        ),
    ]


Field = tuple[str, str]
TWINS: dict[Field, Field] = {
    ("airflow_ducklake_application", "directory"): ("airflow_ducklake_job", "prefix"),
    ("airflow_ducklake_application", "job_id"): ("airflow_ducklake_job", "job_id"),
    ("airflow_ducklake_commit", "snapshot_id"): ("airflow_ducklake_commit", "generation"),
}


def fields_of(scene: Scene) -> list[Field]:
    """Return all columns of all tables of ours."""
    with closing(sqlite3.connect(scene.database)) as connection:
        names = connection.execute(
            "SELECT name FROM sqlite_master WHERE name LIKE 'airflow_ducklake%' AND type = 'table'"
        )
        tables = sorted(name for (name,) in names)
        for table in tables:
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() != (0,), (
                f"{table} has no row"
            )
        layouts = {table: connection.execute(f"PRAGMA table_info({table})").fetchall() for table in tables}
    return [(table, column[1]) for table, layout in layouts.items() for column in layout]


def put(scene: Scene, at: Field, value: object) -> None:
    """Put a value into a column of all rows, as far as the database takes it."""
    table, column = at
    with suppress(sqlite3.IntegrityError):
        scene.change(f"UPDATE OR IGNORE {table} SET {column} = ?", (value,))


@contextmanager
def processes() -> Iterator[list[str]]:
    """Yield which processes this one starts or ends meanwhile."""
    seen: list[str] = []
    _watching.append(seen)
    try:
        yield seen
    finally:
        _watching.remove(seen)


_watching: list[list[str]] = []
_PROCESSES = {
    "subprocess.Popen",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.spawn",
    "os.fork",
    "os.forkpty",
    "os.kill",
    "os.killpg",
    "signal.pthread_kill",
}


def _audit(event: str, arguments: tuple[object, ...]) -> None:
    if _watching and event in _PROCESSES:
        for seen in _watching:
            seen.append(f"{event}{arguments!r:.200}")


sys.addaudithook(_audit)


def check(scene: Scene, what: str, name: str, outcomes: Outcomes, before: Mapping[str, bytes]) -> None:
    """Run a verb, and look for what it did elsewhere."""
    scene.server.requests.clear()
    with processes() as seen:
        outcomes.note(scene.original.catalog, what, name, verbs_of(scene)[what.partition(".")[0]][name])
    effects = [*scene.server.effects(scene.kind), *seen]
    if scene.outside() != before:
        effects.append("files outside of the data path have changed")
    outcomes.wrong += [f"{what}, {name}: {one}" for one in effects]


def test_no_value_in_a_row_of_ours_has_effects_outside_of_the_lake(scene, seed, size):
    scene.original.restore()
    before = scene.outside()
    draw = random.Random(f"rows of ours {scene.kind} {seed}")
    damages = [
        (at, value, has_twin)
        for at in fields_of(scene)
        for value in values_for(scene)
        for has_twin in {False, at in TWINS}
    ]
    outcomes = Outcomes()
    for at, value, has_twin in damages if size == "full" else draw.sample(damages, DAMAGES):
        name = draw.choice(sorted(verbs_of(scene)[at[0]]))
        scene.original.restore()
        put(scene, at, value)
        if has_twin:
            put(scene, TWINS[at], value)
        what = f"{'.'.join(at)}{' and its twin' * has_twin} = {value!r:.120}"
        check(scene, what, name, outcomes, before)
    outcomes.check()


JOB = """
INSERT INTO airflow_ducklake_job (job_id, prefix, registered_at)
VALUES (:job_id, :directory, '2026-11-26 00:00:00+00')"""
APPLICATION = """
INSERT INTO airflow_ducklake_application (job_id, key_digest, generation, try_id, base_snapshot, directory,
    request_digest, cluster, attended_by, application, noted_at)
VALUES (:job_id, :key, 1, 'x', 1, :directory, :digest, :cluster, 'x', NULL, '2026-11-26 00:00:00+00')"""
MADE_UP = "00000000-0000-7000-8000-000000000001"


def request_of_ones_own(scene: Scene) -> dict[str, str]:
    """Leave the request of a job that writes elsewhere, too, in a directory where its job may write."""
    directories = (f"{scene.original.catalog.data_path}main/t/", f"{scene.area}/worker/dags/")
    plans = [WritePlan("t", job_directory(one, MADE_UP), TableSchema(())) for one in directories]
    request = JobRequest(MADE_UP, DatasetSource(Dataset("parquet", "x")), tuple(plans))
    job_io.write_request(request)
    return {"directory": request.directory, "digest": job_io.request_digest(request)}


ROWS: dict[str, Callable[[Scene], dict[str, str]]] = {  # what makes a row whose job's directory goes
    "a directory that climbs": lambda scene: {
        "job_id": "x/../../dags",
        "directory": f"{scene.area}/worker/dags/ducklake-x/../../dags/",
    },
    "a directory elsewhere": lambda scene: {"directory": f"{scene.area}/worker/dags/ducklake-{MADE_UP}/"},
    "another table's directory": lambda scene: {"directory": f"{scene.original.catalog.data_path}main/t/"},
    "another cluster's": lambda scene: {
        "directory": f"{scene.area}/worker/dags/ducklake-{MADE_UP}/",
        "cluster": "another",
    },
    "a request of one's own": request_of_ones_own,
}


@pytest.mark.parametrize("is_registered", [True, False])
@pytest.mark.parametrize("name", ROWS)
def test_no_directory_goes_for_a_row_that_somebody_made_up(scene, name, is_registered):
    scene.original.restore()
    for victim in VICTIMS[:1]:
        (scene.area / victim / f"ducklake-{MADE_UP}").mkdir()
        (scene.area / victim / f"ducklake-{MADE_UP}" / "important.py").write_text("x")
    data = Path(scene.original.catalog.data_path)
    row = {"job_id": MADE_UP, "digest": "0" * 64, "cluster": "here", **ROWS[name](scene)}
    before, lakes = scene.outside(), set((data / "main").rglob("*.parquet"))
    if is_registered:
        scene.change(JOB, row)
    scene.change("DELETE FROM airflow_ducklake_application")
    scene.change(APPLICATION, {**row, "key": KEY.digest})

    with Lake.connect(scene.original.catalog.sqlalchemy_url) as lake, suppress(UntrustedValueError):
        resume.discard_all(lake, scene.cluster, Attempt(KEY, "try 2"))

    assert scene.outside() == before
    assert set((data / "main").rglob("*.parquet")) == lakes


def test_an_application_that_the_manager_has_for_another_job_goes_on(scene):
    """A standalone master does not say what its drivers run; see docs/security.md."""
    for application in (
        "../../../json?x=",
        f"{OURS[scene.kind]}/../x",
        *[OTHERS["yarn"]] * (scene.kind == "yarn"),
    ):
        scene.original.restore()
        scene.server.requests.clear()
        put(scene, ("airflow_ducklake_application", "application"), application)

        with Lake.connect(scene.original.catalog.sqlalchemy_url) as lake:
            resume.discard_all(lake, scene.cluster, Attempt(KEY, "try 2"))
            assert lake.jobs.submitted_of(KEY) == ()

        assert scene.server.effects(scene.kind) == []
        if scene.kind == "yarn":  # its own was found by its tag, and stopped
            assert ("PUT", f"/ws/v1/cluster/apps/{OURS['yarn']}/state") in scene.server.requests


def test_each_table_of_ours_is_read_by_a_verb_and_has_rows(scene):
    scene.original.restore()

    assert {table for table, _ in fields_of(scene)} == verbs_of(scene).keys()


def test_each_verb_answers_without_any_damage(scene):
    for table, verbs in verbs_of(scene).items():
        for name, verb in verbs.items():
            scene.original.restore()
            scene.server.requests.clear()
            outcomes = Outcomes()
            outcomes.note(scene.original.catalog, table, name, verb)
            assert outcomes.wrong == []
            assert scene.server.effects(scene.kind) == []
            assert outcomes.seen.keys() <= EXPECTED.get(name, {"answer"}), (table, name, outcomes.seen)


def test_a_committed_job_whose_row_says_that_it_waits_keeps_its_files(sqlite_catalog):
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path) as lake:
        alone(lake).create_table("t", {"id": "int64"})
        write = stage(lake, "t", rows_of(1, 2))
        uri = job_io.stage_uri(write.directory)
        staged.commit_staged(lake, uri, Commit(INFO, lake.writes.keyed_commit(KEY)))
        removals: dict[str, Callable[[], object]] = {
            "released": lambda: job_life.release_uncommitted(lake, write.job_id),
            "discarded": lambda: staged.discard(lake, [uri]),
        }
        for remove in removals.values():
            with closing(sqlite3.connect(sqlite_catalog.location)) as database, database:
                database.execute("UPDATE airflow_ducklake_job SET released_at = NULL")
            assert not remove()
            assert lake.read_arrow("t") == rows_of(1, 2)
