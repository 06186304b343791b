"""Whoever writes a job's documents, or the catalog, cannot have us touch what lies beside the lake.

Each value that names a place is swapped for hostile ones; the kernel tells whether anything beside the lake
was read, written or deleted.
"""

import json
import random
import shutil
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_ducklake.lake import errors
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.format.snapshots import CommitInfo, CommitKey, TableSnapshot
from airflow_provider_ducklake.lake.planning.upkeep.compaction import Compaction, RewriteRule
from airflow_provider_ducklake.lake.planning.writing import write as plans
from airflow_provider_ducklake.lake.planning.writing.staged import StagedBatch
from airflow_provider_ducklake.lake.spark.job import io as job_io
from airflow_provider_ducklake.lake.spark.job import io as stream_io
from airflow_provider_ducklake.lake.spark.job.codec import FORMAT_VERSION
from airflow_provider_ducklake.lake.spark.job.request import (
    CompactionSource,
    Dataset,
    DatasetSource,
    JobRequest,
    job_directory,
)
from airflow_provider_ducklake.lake.spark.jobs.compact import compact_bin
from airflow_provider_ducklake.lake.storage.deletes.deletes import write_delete_file
from airflow_provider_ducklake.lake.storage.files.filesystem import open_filesystem
from airflow_provider_ducklake.lake.storage.parquet.writer import RollingWriter
from airflow_provider_ducklake.lake.writes.compaction import CommittedCompaction, commit_compacted
from airflow_provider_ducklake.lake.writes.staged import (
    commit_writes,
    discard,
    read_staged,
    tidy_up,
    uris_of_ended,
)
from airflow_provider_ducklake.lake.writes.stream import commit_batches
from airflow_provider_ducklake.lake.writes.verb import Commit
from tests.interop.hostile import FOREIGN, Place
from tests.interop.jobs import compacted_files, rows_of, stage
from tests.interop.lakes import alone
from tests.interop.watching import Watch, watching
from tests.reference.catalogs import CatalogDatabase, file_catalog
from tests.reference.duckdb_lake import open_lake

INFO = CommitInfo("me", "hostile")
NOW = timedelta(0)
JOB_ID = "0190f3c1-0000-7000-8000-000000000001"
NAMES = sorted(Place(Path("/a/b"), Path("/a/c"), Path("/a/b/o")).values())
ALWAYS = ("absolute", "climbing from the root", "climbing in the middle")
SETUP = (
    "CREATE TABLE t (id BIGINT)",
    "INSERT INTO t SELECT range FROM range(20)",
    "INSERT INTO t SELECT range + 20 FROM range(20)",
    "DELETE FROM t WHERE id IN (3, 25)",
    "CREATE TABLE m (id BIGINT)",
    "INSERT INTO m SELECT range FROM range(20)",
    "INSERT INTO m SELECT range FROM range(20)",
    "CREATE TABLE other (id BIGINT)",
    "INSERT INTO other SELECT range FROM range(20)",
    "CREATE TABLE inlined (id BIGINT)",
    "CALL lake.set_option('data_inlining_row_limit', 100, table_name => 'inlined')",
    "INSERT INTO inlined VALUES (1), (2)",
    "CREATE TABLE gone AS SELECT range AS id FROM range(20)",
    "DROP TABLE gone",
)


@dataclass
class Scene:
    """A lake in `area`, with victims in `beside`; it can be put back to what it was at first."""

    catalog: CatalogDatabase
    place: Place
    watch: Watch
    tried: int = 0

    def lake(self) -> Lake:
        return Lake.connect(self.catalog.sqlalchemy_url)

    def keep(self) -> None:
        """Remember what is there now."""
        shutil.rmtree(self._kept, ignore_errors=True)
        shutil.copytree(self.area, self._kept)

    def back(self) -> None:
        shutil.rmtree(self.area)
        shutil.copytree(self._kept, self.area)

    @property
    def area(self) -> Path:
        return self.place.data.parent

    @property
    def _kept(self) -> Path:
        return self.area.parent / "kept"

    def sql(self, text: str, *values: object) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.catalog.location)) as database, database:
            return database.execute(text, values).fetchall()

    @contextmanager
    def unharmed(self, what: str, *, may_read: bool = False) -> Iterator[None]:
        """Check that what is done in the block has no effect beside the lake, nor on another table's file."""
        self.watch.events()
        before = self.place.other.read_bytes()
        yield
        self.tried += 1
        assert self.watch.events(reads=not may_read) == set(), what
        assert self.place.other.read_bytes() == before, what


@pytest.fixture(scope="module")
def whole_scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    tmp_path = tmp_path_factory.mktemp("hostile")
    catalog = file_catalog("sqlite", tmp_path / "area")
    with open_lake(catalog, data_inlining_row_limit=0) as reference:
        for statement in SETUP:
            reference.sql(statement)
        reference.sql("CALL ducklake_expire_snapshots('lake', versions => [1])")
    data, beside = Path(catalog.data_path), tmp_path / "beside"
    (beside / "main" / "t").mkdir(parents=True)
    for name in ("victim.parquet", "victim.conf", "main/t/victim.parquet"):
        pq.write_table(pa.table({"id": pa.array([1, 2], pa.int64())}), beside / name)
    for name in ("victim.json", "request.json", "_DONE", "stage.json", "main/t/_DONE", "0.json"):
        (beside / name).write_text("{}")
    (other,) = (data / "main" / "other").glob("*.parquet")
    shutil.copytree(tmp_path / "area", tmp_path / "first")
    with watching(beside) as watch:
        scene = Scene(catalog, Place(data, beside, other), watch)
        yield scene
    print(f"\n{scene.tried} times a hostile value was put where a path belongs")  # noqa: T201 - with -s


@pytest.fixture
def scene(whole_scene: Scene) -> Scene:
    """The lake as it was at first."""
    shutil.rmtree(whole_scene.area)
    shutil.copytree(whole_scene.area.parent / "first", whole_scene.area)
    return whole_scene


@pytest.fixture
def chosen(seed: int, size: str) -> Callable[..., list[str]]:
    """Return the values that are tried of one kind: all of them at full size, else some, the worst too."""

    def names(kind: str, count: int = 6) -> list[str]:
        if size == "full":
            return NAMES
        others = [name for name in NAMES if name not in ALWAYS]
        return [*ALWAYS, *random.Random(f"{seed} {kind}").sample(others, count)]

    return names


def attempt(act: Callable[[], object]) -> errors.DuckLakeError | None:
    """Do it; only an error of ours may come of it."""
    try:
        act()
    except errors.DuckLakeError as error:
        return error
    return None


# --- documents ---


def put(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def _part(document: dict[str, Any], value: str) -> None:
    document["data_files"][0]["path"] = value


def _parts(document: dict[str, Any], value: str) -> None:
    document["results"][0]["parts"] = [value]


def _deletes(document: dict[str, Any], value: str) -> None:
    document["deletes"] = [value]


def _directory(document: dict[str, Any], value: str) -> None:
    document["directory"] = value


def _root(document: dict[str, Any], value: str) -> None:
    document["target"]["root"] = value


def _name(document: dict[str, Any], value: str) -> None:
    document["target"]["name"] = ["main", value]


def _job_id(document: dict[str, Any], value: str) -> None:
    document["job_id"] = value


OF_STAGES = {
    "part": ("part-00000.json", _part),
    "names of parts": ("_DONE", _parts),
    "names of deletes": ("_DONE", _deletes),
    "job of the result": ("_DONE", _job_id),
    "directory of the stage": ("stage.json", _directory),
    "root of the table": ("stage.json", _root),
    "name of the table": ("stage.json", _name),
    "job of the stage": ("stage.json", _job_id),
}


@pytest.mark.parametrize("kind", OF_STAGES)
def test_documents_of_staged_writes_lead_nowhere(scene, chosen, kind):
    with scene.lake() as lake:
        staged = stage(lake, "main.t", rows_of(100, 101))
    uri = job_io.stage_uri(staged.directory)
    scene.keep()
    file, change = OF_STAGES[kind]

    def commit(lake: Lake) -> None:
        found = read_staged(lake, uri)
        commit_writes(lake, found, Commit(INFO, lake.writes.keyed_commit(CommitKey((str(uuid.uuid4()),)))))

    actions: dict[str, Callable[[Lake], object]] = {
        "commit": commit,
        "tidy up": lambda lake: tidy_up(lake, uri),
        "discard": lambda lake: discard(lake, [uri]),
        "discard again": lambda lake: discard(lake, [uri]),
    }
    for first in ("commit", "discard"):
        for name in chosen(kind):
            scene.back()
            value = scene.place.values()[name]
            put(Path(staged.directory) / file, lambda document, value=value: change(document, value))
            with scene.unharmed(f"{kind}: {name}"), scene.lake() as lake:
                for action in actions if first == "commit" else ("discard", "discard again"):
                    attempt(lambda action=action, lake=lake: actions[action](lake))
    scene.back()
    with scene.lake() as lake:
        commit(lake)
        assert lake.verify() == []


def test_a_committed_stage_is_tidied_up_without_harm(scene):
    with scene.lake() as lake:
        staged = stage(lake, "main.t", rows_of(100, 101))
        uri = job_io.stage_uri(staged.directory)
        commit_writes(
            lake, read_staged(lake, uri), Commit(INFO, lake.writes.keyed_commit(CommitKey(("once",))))
        )
        put(
            Path(staged.directory) / "_DONE",
            lambda document: _deletes(document, "../../../../beside/victim.json"),
        )

        with scene.unharmed("tidy up"):
            tidy_up(lake, uri)

        assert {one.suffix for one in Path(staged.directory).iterdir()} == {".parquet"}
        assert {100, 101} < set(lake.read_arrow("t")["id"].to_pylist())


def test_a_write_that_was_staged_for_one_table_goes_to_no_other(scene):
    with scene.lake() as lake:
        staged, other = stage(lake, "main.t", rows_of(100)), lake.table_snapshot("other")
        uri = job_io.stage_uri(staged.directory)

        def redirect(document: dict[str, Any]) -> None:
            document["target"] |= {
                "table_id": other.table_id,
                "name": ["main", "other"],
                "uuid": other.table_uuid,
            }

        put(Path(staged.directory) / "stage.json", redirect)
        with pytest.raises(errors.UntrustedValueError, match=r"main\.other.* registered for"):
            read_staged(lake, uri)
        assert lake.row_count("other") == 20


def kinds_of_jobs(table: TableSnapshot) -> dict[str, plans.JobTarget | None]:
    """Return what the catalog may note of a job that has a directory in a table, but of a staged write."""
    return {
        "stream": plans.target_of_stream(table, "/elsewhere/checkpoint/"),
        "compaction": plans.target_of_compaction(table),
        "plain write": plans.target_of_write(table.root),
        "nothing": None,
    }


def note(scene: Scene, job_id: str, noted: plans.JobTarget | None) -> None:
    values = (None, None, None) if noted is None else (noted.table_id, noted.root, noted.digest)
    statement = "UPDATE airflow_ducklake_job SET table_id = ?, root = ?, target_digest = ? WHERE job_id = ?"
    scene.sql(statement, *values, job_id)


def _redirect(document: dict[str, Any], redirect: dict[str, Any]) -> None:
    target = document["target"] | redirect
    if target["kind"] == "new":  # which has no ids of its own
        del target["table_id"], target["partition_id"]
    document["target"] = target


def test_no_document_has_the_files_of_any_job_go_to_another_table(scene):
    with scene.lake() as lake:
        staged, other = stage(lake, "main.t", rows_of(100)), lake.table_snapshot("other")
        path, uri = Path(staged.directory) / "stage.json", job_io.stage_uri(staged.directory)
        honest = path.read_text()
        ids = {"table_id": int(other.table_id)}, {"uuid": other.table_uuid}, {"name": ["main", "other"]}
        redirects = (*ids, ids[0] | ids[1] | ids[2], {"root": other.root}, {"kind": "new", "options": {}})
        for noted in kinds_of_jobs(lake.table_snapshot("t")).values():
            note(scene, staged.job_id, noted)
            for redirect in redirects:
                path.write_text(honest)
                put(path, lambda document, redirect=redirect: _redirect(document, redirect))
                with pytest.raises(errors.UntrustedValueError, match=staged.job_id):
                    read_staged(lake, uri)
            path.write_text(honest)
            with pytest.raises(errors.UntrustedValueError, match="registered for"):
                read_staged(lake, uri)


def job(lake: Lake) -> tuple[JobRequest, plans.WritePlan]:
    """Do what a merge does of which a row was deleted and another one added."""
    table = lake.table_snapshot("t", with_files=True)
    plan = plans.plan_write(table, job_directory(table.root, JOB_ID))
    request = JobRequest(JOB_ID, DatasetSource(Dataset("parquet", "in.parquet")), (plan, plan), verb="merge")
    with RollingWriter(plan.target, lambda: f"{plan.directory}x.parquet", plan.settings) as writer:
        writer.write(rows_of(7))
    path = f"{plan.directory}deletes/1-delete.parquet"
    written = write_delete_file(
        open_filesystem(path), table.files[0].path, pa.table({"pos": pa.array([1], pa.int64())})
    )
    nothing = plans.WriteResult(plan.target, (), (), 0, {})
    inserted = replace(nothing, data_files=tuple(writer.files), rows_written=1)
    job_io.write_request(request)
    job_io.write_row_changes(
        request,
        plans.RowChanges(
            (
                plans.NewDeletes(
                    table.files[0].id,
                    path,
                    1,
                    written.file_size_bytes,
                    written.footer_size,
                    written.encryption_key,
                ),
            ),
            (),
            nothing,
            inserted,
        ),
    )
    return request, plan


def _second_parts(document: dict[str, Any], value: str) -> None:
    document["results"][1]["parts"] = [value]


def _delete_file(document: dict[str, Any], value: str) -> None:
    document["deletes"][0][1] = value


OF_JOBS = {
    "part of a merge": ("part-00000.json", _part),
    "names of a merge's parts": ("_DONE", _second_parts),
    "names of a merge's deletes": ("_DONE", _deletes),
    "delete file": ("deletes-00000.json", _delete_file),
    "job of a merge": ("_DONE", _job_id),
}


@pytest.mark.parametrize("kind", OF_JOBS)
def test_documents_of_jobs_lead_nowhere(scene, chosen, kind):
    with scene.lake() as lake:
        request, _ = job(lake)
    scene.keep()
    file, change = OF_JOBS[kind]

    def commit(lake: Lake) -> None:
        changes = job_io.read_row_changes(request)
        change_set = lake.writes.row_changes(lake.table_snapshot("t"), changes)
        lake.committer.commit_change_sets([change_set], INFO)

    for name in chosen(kind):
        scene.back()
        value = scene.place.values()[name]
        put(Path(request.directory) / file, lambda document, value=value: change(document, value))
        with scene.unharmed(f"{kind}: {name}"), scene.lake() as lake:
            assert attempt(lambda lake=lake: commit(lake)) is not None, name
            assert (
                attempt(lambda: job_io.delete_job_files(request)) is None
                or "names" in kind
                or "job of" in kind
            )
            job_io.delete_job_directories(request)
    scene.back()
    with scene.lake() as lake:
        commit(lake)
        assert sorted(lake.read_arrow("t")["id"].to_pylist())[:4] == [0, 2, 4, 5]
        assert lake.verify() == []


def _twice(*keys: str | int) -> Callable[[dict[str, Any]], None]:
    """Return what has the last entry of a list in a document stand there twice."""

    def change(document: Any) -> None:
        for key in keys:
            document = document[key]
        document.append(document[-1])

    return change


def _second_spelling(document: dict[str, Any]) -> None:
    (file,) = document["data_files"]
    document["data_files"].append(file | {"path": file["path"].replace("/ducklake-", "/./ducklake-")})


def _rows(count: int) -> Callable[[dict[str, Any]], None]:
    return lambda document: document["results"][-1].update(rows_written=count)


def _shared_part(document: dict[str, Any]) -> None:
    document["results"][0] |= {"parts": ["part-00000.json"], "rows_written": 1}


TWICE: dict[str, dict[str, Callable[[dict[str, Any]], None]]] = {
    "a part": {"_DONE": lambda document: (_twice("results", 1, "parts")(document), _rows(2)(document))},
    "a part, by two results": {"_DONE": _shared_part},
    "a file": {"part-00000.json": _twice("data_files"), "_DONE": _rows(2)},
    "a file, in two spellings": {"part-00000.json": _second_spelling, "_DONE": _rows(2)},
    "deletes": {"_DONE": _twice("deletes")},
    "a delete file": {"deletes-00000.json": _twice("deletes")},
    "a row in the catalog": {"deletes-00000.json": lambda document: document.update(inlined=[1, 1])},
}


@pytest.mark.parametrize("kind", TWICE)
def test_what_a_job_did_counts_once(scene, kind):
    with scene.lake() as lake:
        request, _ = job(lake)
        for name, change in TWICE[kind].items():
            put(Path(request.directory) / name, change)

        with pytest.raises(errors.UntrustedValueError, match=r"twice|not a file of the job"):
            job_io.read_row_changes(request)


def test_a_staged_write_and_a_batch_name_each_file_once(scene):
    with scene.lake() as lake:
        staged = stage(lake, "main.t", rows_of(100))
        put(Path(staged.directory) / "part-00000.json", _twice("data_files"))
        put(Path(staged.directory) / "_DONE", _rows(2))
        checkpoint = batch(lake, scene.area)
        (record,) = Path(checkpoint).glob("ducklake/*/0.json")
        put(record, _twice("data_files"))

        with pytest.raises(errors.UntrustedValueError, match="twice"):
            read_staged(lake, [job_io.stage_uri(staged.directory)])
        with pytest.raises(errors.UntrustedValueError, match="twice"):
            list(commit_batches(lake, lake.table_snapshot("t"), checkpoint, INFO))
        assert lake.row_count("t") == 38


GARBAGE = (
    "",
    "[]",
    "[" * 100_000,
    "null",
    '{"v": V}',
    '{"v": V, "job_id": "JOB"}',
    '{"v": V, "job_id": "JOB", "results": 7, "deletes": 7, "data_files": 7, "inlined": 7, "target": 7}',
    '{"v": V, "job_id": "JOB", "results": [7], "deletes": [7], "data_files": [7], "inlined": ["x"]}',
    '{"v": V, "job_id": "JOB", "results": [{"parts": [[]]}], "deletes": [[]], "data_files": [{"path": {}}]}',
    '{"v": V, "job_id": "JOB", "error": "SchemaMismatchError", "args": []}',
    '{"v": V, "job_id": "JOB", "error": ["CommitStateUnknownError"], "args": 7}',
    "\udcff",
)


def test_garbage_in_the_documents_of_a_job_is_refused_with_an_error_of_ours(scene):
    with scene.lake() as lake:
        request, _ = job(lake)
        documents = [path for path in Path(request.directory).iterdir() if path.is_file()]
        documents.append(Path(request.directory) / "_ERROR.json")
        honest = {path: path.read_bytes() for path in documents if path.exists()}
        for path in documents:
            for text in GARBAGE:
                path.write_bytes(
                    text.replace("JOB", JOB_ID)
                    .replace("V", str(FORMAT_VERSION))
                    .encode(errors="surrogateescape")
                )
                with scene.unharmed(f"{path.name}: {text[:200]}"):
                    attempt(lambda: job_io.read_request(job_io.request_uri(request.directory)))
                    attempt(lambda: job_io.read_row_changes(request))
                    attempt(lambda: job_io.read_error(request))
            path.write_bytes(honest.get(path, b"{}"))
        job_io.delete_job_directories(request)


def test_a_request_that_somebody_changed_is_not_run(scene, chosen):
    with scene.lake() as lake:
        request, _ = job(lake)
    uri, digest = job_io.request_uri(request.directory), job_io.request_digest(request)
    assert job_io.read_request(uri, digest) == request
    honest = Path(uri).read_text()
    changes: dict[str, Callable[[dict[str, Any], str], None]] = {
        "source": lambda document, value: document["source"]["dataset"].update(path=value),
        "directory": lambda document, value: document["plans"][0].update(directory=value),
        "verb": lambda document, value: document.update(verb=value),
    }
    for kind, change in changes.items():
        for name in chosen(kind):
            Path(uri).write_text(honest)
            put(
                Path(uri),
                lambda document, change=change, name=name: change(document, scene.place.values()[name]),
            )
            with scene.unharmed(f"{kind}: {name}"), pytest.raises(errors.UntrustedValueError, match="digest"):
                job_io.read_request(uri, digest)


def batch(lake: Lake, folder: Path) -> str:
    """Stage a batch of a stream as its job does; return the checkpoint."""
    table, query = lake.table_snapshot("t"), str(uuid.UUID(int=7))
    directory, checkpoint = job_directory(table.root, JOB_ID), f"{folder / 'checkpoint'}/"
    lake.jobs.register(JOB_ID, directory, plans.target_of_stream(table, checkpoint))
    plan = plans.plan_write(table, directory)
    Path(checkpoint).mkdir()
    Path(checkpoint, "metadata").write_text(json.dumps({"id": query}))
    for number in range(2):
        path = f"{directory}{number}/x.parquet"
        with RollingWriter(plan.target, lambda path=path: path, plan.settings) as writer:
            writer.write(rows_of(7 + number))
        result = plans.WriteResult(plan.target, (), tuple(writer.files), 1, {})
        stream_io.write_batch(checkpoint, StagedBatch(query, number, JOB_ID, result))
    return checkpoint


OF_STREAMS = {
    "file of a batch": ("ducklake/*/0.json", _part),
    "job of a batch": ("ducklake/*/0.json", _job_id),
    "id of the query": ("metadata", lambda document, value: document.update(id=value)),
    "query of a batch": ("ducklake/*/0.json", lambda document, value: document.update(query_id=value)),
}


@pytest.mark.parametrize("kind", OF_STREAMS)
def test_records_of_streams_lead_nowhere(scene, chosen, kind):
    with scene.lake() as lake:
        checkpoint = batch(lake, scene.area)
    scene.keep()
    pattern, change = OF_STREAMS[kind]

    def commit(lake: Lake) -> None:
        list(commit_batches(lake, lake.table_snapshot("t"), checkpoint, INFO))

    for name in chosen(kind):
        scene.back()
        (path,) = Path(checkpoint).glob(pattern)
        value = scene.place.values()[name]
        put(path, lambda document, value=value: change(document, value))
        with scene.unharmed(f"{kind}: {name}"), scene.lake() as lake:
            assert attempt(lambda lake=lake: commit(lake)) is not None, name
    scene.back()
    with scene.lake() as lake:
        commit(lake)
        assert 7 in lake.read_arrow("t")["id"].to_pylist()
        assert lake.verify() == []


def test_a_batch_of_a_stream_releases_no_job_of_another_table(scene):
    with scene.lake() as lake:
        checkpoint, staged = batch(lake, scene.area), stage(lake, "main.other", rows_of(100))
        (path,) = Path(checkpoint).glob("ducklake/*/1.json")
        put(path, lambda document: document.update(job_id=staged.job_id, data_files=[]))

        with pytest.raises(errors.UntrustedValueError, match="job of another table"):
            list(commit_batches(lake, lake.table_snapshot("t"), checkpoint, INFO))

        assert lake.jobs.registered([staged.job_id])[staged.job_id].released_at is None


@pytest.mark.parametrize("kind", ["staged", "stream", "compaction", "plain write", "nothing", "none"])
def test_a_batch_of_a_stream_commits_and_releases_no_job_of_another_kind(scene, kind):
    with scene.lake() as lake:
        checkpoint, staged = batch(lake, scene.area), stage(lake, "main.t", rows_of(100))
        if kind != "staged":
            note(scene, staged.job_id, kinds_of_jobs(lake.table_snapshot("t")).get(kind))
        if kind == "none":
            scene.sql("DELETE FROM airflow_ducklake_job WHERE job_id = ?", staged.job_id)
        (record,) = Path(checkpoint).glob("ducklake/*/1.json")
        files = json.loads((Path(staged.directory) / "part-00000.json").read_text())["data_files"]
        put(record, lambda document: document.update(job_id=staged.job_id, data_files=files))

        with pytest.raises(
            errors.UntrustedValueError, match=f"names 'job {staged.job_id}'.* remove the record"
        ):
            list(commit_batches(lake, lake.table_snapshot("t"), checkpoint, INFO))

        assert 100 not in lake.read_arrow("t")["id"].to_pylist()
        known = lake.jobs.registered([staged.job_id]).values()
        assert [one.released_at for one in known] == ([] if kind == "none" else [None])
        assert lake.verify() == []


def _copy_as_other_batch(record: Path) -> None:
    copy = record.with_name("2.json")
    copy.write_text(record.read_text())
    put(copy, lambda document: document.update(batch_id=2))


def _copy_as_other_query(record: Path) -> None:
    query = str(uuid.UUID(int=8))
    copy = record.parent.with_name(query) / record.name
    copy.parent.mkdir()
    copy.write_text(record.read_text())
    put(copy, lambda document: document.update(query_id=query))
    (record.parents[2] / "metadata").write_text(json.dumps({"id": query}))


COPIES = {"another batch": _copy_as_other_batch, "another query": _copy_as_other_query}


@pytest.mark.parametrize("copy", COPIES.values(), ids=COPIES)
@pytest.mark.parametrize("fate", ["in use", "waits for its deletion", "of a job that is released"])
def test_no_copy_of_a_record_has_the_files_of_a_batch_committed_twice(scene, copy, fate):
    with scene.lake() as lake:
        checkpoint = batch(lake, scene.area)
        list(commit_batches(lake, lake.table_snapshot("t"), checkpoint, INFO))
        if fate == "waits for its deletion":
            alone(lake).truncate("t")
            lake.expire_snapshots(keep_last=1, min_retention=NOW)
        if fate == "of a job that is released":
            lake.jobs.release(JOB_ID)
        rows = sorted(lake.read_arrow("t")["id"].to_pylist())
        (record,) = Path(checkpoint).glob("ducklake/*/1.json")
        copy(record)

        with pytest.raises(
            errors.UntrustedValueError,
            match=r"\.json names .*already a data file of the lake.* remove this rec",
        ):
            list(commit_batches(lake, lake.table_snapshot("t"), checkpoint, INFO))

        assert sorted(lake.read_arrow("t")["id"].to_pylist()) == rows
        assert lake.verify() == []


@pytest.mark.parametrize("spelling", ["file://{}", "local://{}", "/{}", "{}./"])
def test_batches_are_committed_by_any_spelling_of_their_checkpoint(scene, spelling):
    with scene.lake() as lake:
        checkpoint = spelling.format(batch(lake, scene.area))

        assert len(list(commit_batches(lake, lake.table_snapshot("t"), checkpoint, INFO))) == 2


def test_a_batch_whose_files_were_given_up_is_not_committed(scene):
    with scene.lake() as lake:
        checkpoint, head = batch(lake, scene.area), lake.current_snapshot()
        lake.jobs.release(JOB_ID)  # as a clean-up does before it deletes

        with pytest.raises(
            errors.FilesReleasedError, match=r"batch 0 is named by .*/0\.json.*DuckLakeAddFilesOperator"
        ):
            list(commit_batches(lake, lake.table_snapshot("t"), checkpoint, INFO))

        assert lake.current_snapshot() == head


def compaction(lake: Lake) -> str:
    """Do what the tasks of a compaction do; return the directory of its records."""
    table = lake.table_snapshot("m")
    directory = job_directory(table.root, JOB_ID)
    lake.jobs.register(JOB_ID, directory, plans.target_of_compaction(table))
    plan = plans.plan_write(table, job_directory(table.root, str(uuid.uuid4())))
    for one in lake.maintenance.plan_merge("m").bins:
        single = Compaction(table, (one,))
        compact_bin(CompactionSource(single, JOB_ID), plan)
    return directory


def test_records_of_compactions_lead_nowhere(scene, chosen):
    with scene.lake() as lake:
        directory = compaction(lake)
    scene.keep()

    def commit(lake: Lake) -> list[CommittedCompaction]:
        return list(commit_compacted(lake, lake.table_snapshot("m"), directory, INFO, job_id=JOB_ID))

    for sources_are_gone in (False, True):
        for name in chosen("compaction"):
            scene.back()
            (path,) = Path(directory).glob("bins/*.json")
            put(path, lambda document, name=name: document["file"].update(path=scene.place.values()[name]))
            with scene.lake() as lake:
                if sources_are_gone:  # then the file is given up, and removed
                    lake.append_arrow("m", rows_of(1))
                    scene.sql("UPDATE ducklake_data_file SET end_snapshot = 99 WHERE end_snapshot IS NULL")
                with scene.unharmed(f"compaction: {name}"):
                    assert attempt(lambda lake=lake: commit(lake)) is not None, name
    scene.back()
    with scene.lake() as lake:
        assert len(commit(lake)) == 1
        assert lake.verify() == []


@pytest.mark.parametrize("name", NAMES)
def test_what_tasks_hand_on_leads_nowhere(scene, name):
    value = scene.place.values()[name]
    with scene.lake() as lake:
        staged = job_io.stage_uri(stage(lake, "main.t", rows_of(100)).directory)
        documents = [
            value,
            f"{value}/stage.json",
            {"staged": value},
            [value],
            staged.replace("main/t", value),
        ]
        for document in [
            *documents,
            f"{value}ducklake-{JOB_ID}/stage.json",
            staged.replace("ducklake-", "x-"),
        ]:
            with scene.unharmed(f"XCom: {document}"):
                assert attempt(lambda document=document: read_staged(lake, document)) is not None
                assert attempt(lambda document=document: discard(lake, uris_of_ended(document))) is not None
                assert attempt(lambda document=document: tidy_up(lake, document)) is not None


# --- the catalog ---

_SET = "UPDATE ducklake_{table} SET path = ?, path_is_relative = {is_relative} WHERE "
_NEWEST = "{key} = (SELECT max({key}) FROM ducklake_{table} WHERE table_id = 1)"
OF_CATALOG = {
    "schema": _SET.replace("{table}", "schema") + "schema_name = 'main'",
    "table": _SET.replace("{table}", "table") + "table_name = 't'",
    "data file": (_SET + _NEWEST).replace("{table}", "data_file").replace("{key}", "data_file_id"),
    "delete file": (_SET + _NEWEST).replace("{table}", "delete_file").replace("{key}", "delete_file_id"),
    "scheduled file": _SET.replace("{table}", "files_scheduled_for_deletion") + "true",
    "prefix of a job": "UPDATE airflow_ducklake_job SET prefix = ?",
    "id of the lake": "UPDATE airflow_ducklake_mark SET lake_id = ?",
    "data path": "UPDATE ducklake_metadata SET value = ? WHERE key = 'data_path'",
}


def actions(staged: str, *, is_sole_owner: bool) -> dict[str, Callable[[Lake], object]]:
    """Return what the provider does with a lake."""

    def compacted(lake: Lake, plan: Compaction) -> None:
        lake.opened.check_writable(plan.table.root)  # as the operators do
        lake.maintenance.commit_compacted(plan.table, compacted_files(lake, plan), INFO)

    def create(lake: Lake) -> None:
        with lake.transaction() as tx:
            tx.create_table("main.fresh", {"id": "int64"})
            tx.append_arrow("main.fresh", rows_of(*range(20)))

    def delete(lake: Lake) -> None:
        alone(lake).delete_rows("t", "id > 5 AND id < 9")

    return {
        "discard": lambda lake: discard(lake, [staged]),
        "read": lambda lake: lake.read_arrow("t"),
        "read changes": lambda lake: lake.changes("t", 2, lake.current_snapshot().id).read_arrow(),
        "verify": lambda lake: lake.verify(),
        "health": lambda lake: lake.table_health(),
        "info": lambda lake: lake.table_info(),
        "files": lambda lake: lake.files("t"),
        "append": lambda lake: lake.append_arrow("t", rows_of(*range(200, 220))),
        "create": create,
        "delete": delete,
        "stage": lambda lake: stage(lake, "main.t", rows_of(300)),
        "merge": lambda lake: compacted(lake, lake.maintenance.plan_merge("t")),
        "rewrite": lambda lake: compacted(lake, lake.maintenance.plan_rewrite("t", RewriteRule(0.0))),
        "flush": lambda lake: lake.flush_inlined_data(),
        "restore": lambda lake: lake.restore("t", at=3),
        "expire": lambda lake: lake.expire_snapshots(keep_last=1, min_retention=NOW),
        "clean up": lambda lake: lake.cleanup_old_files(older_than=NOW),
        "orphans": lambda lake: lake.delete_orphaned_files(older_than=NOW, sole_owner=is_sole_owner),
        "restore again": lambda lake: lake.restore("t", at=lake.current_snapshot().id),
    }


@pytest.mark.parametrize("kind", OF_CATALOG)
def test_paths_of_the_catalog_lead_nowhere(scene, chosen, kind):
    with scene.lake() as lake:
        staged = job_io.stage_uri(stage(lake, "main.t", rows_of(100)).directory)
        lake.delete_orphaned_files()  # leaves the lake's mark
        assert lake.verify() == []
    scene.keep()
    doing = actions(staged, is_sole_owner=kind != "schema")  # its files may well be another lake's then
    statement = OF_CATALOG[kind]
    for name in chosen(kind, 2):
        for is_relative in (0, 1) if "{is_relative}" in statement else (0,):
            scene.back()
            scene.sql(statement.format(is_relative=is_relative), scene.place.values()[name])
            is_foreign = (
                not is_relative
                and name in FOREIGN
                and kind in ("schema", "table", "data file", "delete file")
            )
            pinned = scene.catalog.data_path if kind == "data path" else None
            with (
                scene.unharmed(f"{kind}, {is_relative=}: {name}", may_read=is_foreign),
                Lake.connect(scene.catalog.sqlalchemy_url, data_path=pinned) as lake,
            ):
                for act in doing.values():
                    attempt(lambda act=act, lake=lake: act(lake))
    scene.back()
    with scene.lake() as lake:
        for act in doing.values():
            act(lake)
        assert lake.verify() == []


def test_neither_the_catalog_nor_a_task_has_a_directory_elsewhere_discarded(scene):
    with scene.lake() as lake:
        staged = stage(lake, "main.t", rows_of(100))
        elsewhere = scene.place.beside / f"ducklake-{staged.job_id}"
        with scene.unharmed("prefix and XCom"):
            scene.sql("UPDATE airflow_ducklake_job SET prefix = ?", f"{elsewhere}/")
            for act in (read_staged, tidy_up, discard):
                given = f"{elsewhere}/stage.json"
                with pytest.raises(errors.UntrustedValueError, match="outside the data path"):
                    act(lake, [given])


@pytest.mark.parametrize("spelling", ["{}", "file://{}", "local://{}", "/{}"])
def test_a_lake_on_an_object_store_has_no_local_files(scene, tmp_path, spelling):
    victim = spelling.format(scene.place.beside / "victim.parquet")
    catalog = replace(scene.catalog, location=f"{tmp_path}/store.sqlite", data_path="s3://bucket/lake/")
    store = replace(scene, catalog=catalog)
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path, foreign_files=True) as lake:
        alone(lake).create_table("t", {"id": "int64"})
        with scene.unharmed(spelling):
            with pytest.raises(errors.InvalidInputError, match="local path"), lake.transaction() as tx:
                tx.add_data_files("t", [victim])
            store.sql(
                "INSERT INTO ducklake_data_file (data_file_id, table_id, begin_snapshot, path, "
                "path_is_relative, file_format, record_count, file_size_bytes, footer_size) "
                "VALUES (7, 1, 1, ?, 0, 'parquet', 2, 9, 9)",
                victim,
            )
            store.sql(
                "INSERT INTO ducklake_files_scheduled_for_deletion VALUES (9, ?, 0, '2026-01-01')", victim
            )
            with pytest.raises(errors.UntrustedValueError, match=r"Data file 7 .* local path"):
                lake.read_arrow("t")
            store.sql("DELETE FROM ducklake_data_file")
            ((_, reason),) = lake.cleanup_old_files(older_than=NOW).failures
            assert "is a local path" in reason
