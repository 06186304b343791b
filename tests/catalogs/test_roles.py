"""With the grants of docs/roles.md each role does what it may; all else is refused, and changes nothing."""

import random
import re
import tempfile
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import NoReturn

import duckdb
import psycopg
import pyarrow as pa
import pymysql
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.catalog.ledger.jobs import SubmittedJob
from airflow_provider_ducklake.lake.catalog.ledger.restores import RESTORES
from airflow_provider_ducklake.lake.catalog.upkeep.cleanup import MARKS
from airflow_provider_ducklake.lake.errors import CatalogError, CatalogRefusedError, MigrationRefusedError
from airflow_provider_ducklake.lake.format.names.paths import job_directory
from airflow_provider_ducklake.lake.format.snapshots import CommitInfo, CommitKey, SnapshotId
from airflow_provider_ducklake.lake.writes.compaction import Compact, compact
from tests.catalogs.database_roles import Users, as_user, blocks, drop_roles, run, statements, users
from tests.concurrency.arrow_jobs import ArrowSubmitter
from tests.concurrency.test_concurrent_verbs import Lakes
from tests.concurrency.verbs import STATEMENTS, VERBS, Pair, PausingLake, write_given
from tests.interop.lakes import alone, by_duckdb
from tests.reference.catalog_dump import dump_catalog
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake
from tests.reference.mariadb import admin, is_mysql

pytestmark = pytest.mark.databases

KINDS = ("postgres", "mariadb")
WRITES_IN_CI = 12  # of those that writers may do
NOTHING = timedelta(0)
SAYS = {  # what is missing, on what, and where to get it
    CatalogRefusedError: r"(lacks|command denied|must be owner).* .*ducklake_.*docs/roles\.md",
    MigrationRefusedError: r"may not alter the catalog's tables.*docs/roles\.md",
}


def _newest(lake: Lake) -> int:
    return lake.current_snapshot().id


READS: dict[str, Callable[[Lake, str, int], object]] = {
    "read": lambda lake, t, _: lake.read_arrow(t, filter="n > 3"),
    "time travel": lambda lake, t, then: lake.read_arrow(t, at=then),
    "scan": lambda lake, t, _: lake.scan(t, stats_of=["n"]),
    "changes": lambda lake, t, then: lake.changes(t, then, _newest(lake)),
    "insertions": lambda lake, t, then: lake.insertions(t, then, _newest(lake)),
    "deletions": lambda lake, t, then: lake.deletions(t, then, _newest(lake)),
    "sensor": lambda lake, t, then: lake.table_changes(t, then, ("insert",)),
    "snapshots": lambda lake, *_: lake.snapshots(),
    "tables": lambda lake, *_: lake.tables(),
    "table_info": lambda lake, t, _: lake.table_info(t),
    "files": lambda lake, t, _: lake.files(t),
    "row_count": lambda lake, t, _: lake.row_count(t),
    "column_bounds": lambda lake, t, _: lake.column_bounds(t, "n"),
    "health": lambda lake, *_: lake.table_health(),
    "clients": lambda lake, *_: lake.clients(),
    "options": lambda lake, t, _: lake.reads.options(t),
    "registered_files": lambda lake, *_: lake.reads.registered_files([f"{lake.data_path}x.parquet"]),
    "tags": lambda lake, *_: lake.tags(),
    "export": lambda lake, *_: lake.export_catalog(f"{tempfile.mkdtemp()}/x.sqlite"),
    "restored_tables": lambda lake, *_: lake.reads.restored_tables(),
    "verify": lambda lake, *_: lake.verify(),
    "protected_prefixes": lambda lake, *_: lake.jobs.protected_prefixes(),
    "cleanup, dry": lambda lake, *_: lake.cleanup_old_files(older_than=NOTHING, dry_run=True),
    "orphans, dry": lambda lake, *_: lake.delete_orphaned_files(older_than=NOTHING, dry_run=True),
    "flush, dry": lambda lake, *_: lake.flush_inlined_data(dry_run=True),
    "migrate, dry": lambda lake, *_: lake.migrate("1.1", dry_run=True),
    "expire, dry": lambda lake, *_: lake.expire_snapshots(keep_last=1, dry_run=True),
    "repair, dry": lambda lake, *_: lake.repair(lake.verify(), dry_run=True),
}

# What a writer must not do; all that VERBS has besides is a writer's.
_OF_MAINTAINERS = ("merge files", "merge files, late", "restore")
WRITER_VERBS = [one for one in VERBS if one.name not in _OF_MAINTAINERS]
UPKEEP: dict[str, Callable[[PausingLake, Pair], object]] = {
    **{one.name: one.act for one in VERBS if one.name in _OF_MAINTAINERS},
    "create_indexes": lambda lake, _: lake.maintenance.create_indexes(),
    "repair": lambda lake, _: lake.repair(lake.verify()),
    "cleanup": lambda lake, _: lake.cleanup_old_files(older_than=NOTHING),
    "expire": lambda lake, _: lake.expire_snapshots(keep_last=1),
    "orphans": lambda lake, _: lake.delete_orphaned_files(older_than=NOTHING, sole_owner=True),
    "migrate": lambda lake, _: lake.migrate("1.1"),
}


def _views(lake: Lake, t: str) -> None:
    with lake.transaction() as tx:
        tx.create_view("v", f"SELECT id FROM {t}")
        tx.comment_on_table(t, "orders")
        tx.comment_on_column(t, "n", "number")
    with lake.transaction() as tx:
        tx.comment_on_view("v", "all of them")
        tx.comment_on_table(t, None)
        tx.rename_view("v", "w")
    alone(lake).drop_view("w")


MORE: dict[str, Callable[[Lake, str], object]] = {
    "option of the lake": lambda lake, _: lake.set_option("parquet_compression", "zstd"),
    "another value": lambda lake, _: lake.set_option("parquet_compression", "snappy"),
    "no bounds": lambda lake, t: lake.set_option("skip_stats_columns", ["n"], table=t),
    "bounds again": lambda lake, t: lake.reset_option("skip_stats_columns", t),
    "views and comments": _views,
    "tag": lambda lake, _: lake.tag("kept"),
    "tag again": lambda lake, _: lake.tag("kept", 0, replace=True),
    "untag": lambda lake, _: lake.untag("kept"),
}


@pytest.fixture(params=KINDS)
def given(request, new_catalog) -> Iterator[Users]:
    """A new lake, made by the administrator, and the three users."""
    catalog = new_catalog(request.param)
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        lake.set_option("data_inlining_row_limit", 10 if catalog.kind == "postgres" else 0)
    with users(catalog) as made:
        made.grant()
        yield made


@pytest.fixture
def files(tmp_path) -> Path:
    folder = tmp_path / "given"
    folder.mkdir()
    write_given(folder)
    return folder


def given_rows() -> pa.Table:
    return pa.table(
        {"id": pa.array([1], pa.int64()), "n": pa.array([1], pa.int32()), "part": pa.array(["a"])}
    )


def new_pair(catalog: CatalogDatabase, files: Path, number: int = 0) -> Pair:
    """Make the tables of ``Lakes`` as one user."""
    with PausingLake.connect(catalog.sqlalchemy_url) as lake:
        lakes = Lakes.__new__(Lakes)
        lakes.files, lakes.second, lakes.count = files, lake, number
        return lakes.new_pair()


def plant(catalog: CatalogDatabase, pair: Pair) -> None:
    """Leave something to repair, to clean up and to find: a scheduled file that is in use, and an orphan."""
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        path = lake.files(f"{pair.schema}.t")[0].data_file
    orphan = Path(catalog.data_path) / "orphan.parquet"
    orphan.write_bytes(b"")
    due = Path(catalog.data_path) / "due.parquet"
    due.write_bytes(b"")
    time = "TIMESTAMP '2020-01-01 00:00:00'"
    run(
        catalog,
        f"INSERT INTO ducklake_files_scheduled_for_deletion VALUES (77, '{path}', false, {time})",
        f"INSERT INTO ducklake_files_scheduled_for_deletion VALUES (78, '{due}', false, {time})",
    )


def all_files(catalog: CatalogDatabase) -> set[Path]:
    return {one for one in Path(catalog.data_path).rglob("*") if one.is_file()}


def tidied(name: str, act: Callable[[], object], catalog: CatalogDatabase) -> Callable[[], object]:
    """Return the act; one that compacts leaves files in these tests, which its job would keep records of."""
    if "files" not in name:
        return act

    def tidily() -> None:
        there = all_files(catalog)
        try:
            act()
        finally:
            for one in all_files(catalog) - there:
                one.unlink()

    return tidily


def outcome(act: Callable[[], object]) -> str:
    """Say what came of it: done, or refused in so many words."""
    try:
        act()
    except CatalogError as error:
        is_clear = re.search(SAYS[type(error)], str(error), re.DOTALL)
        return "refused" if is_clear else str(error)
    return "done"


def refused(admin: CatalogDatabase, acts: dict[str, Callable[[], object]]) -> None:
    """Try everything; nothing of it is done, and nothing is left of it but jobs that were given up."""
    before, there = dump_catalog(admin), all_files(admin)
    found = {name: outcome(tidied(name, act, admin)) for name, act in acts.items()}
    assert found == dict.fromkeys(acts, "refused")
    after = dump_catalog(admin)
    assert all(one["released_at"] is not None for one in after.get("airflow_ducklake_job", ()))
    assert after | {"airflow_ducklake_job": []} == before | {"airflow_ducklake_job": []}
    assert all_files(admin) == there


def test_a_reader_reads_everything_and_writes_nothing(given, files):
    pair = new_pair(given.of("writer"), files)
    plant(given.catalog, pair)
    t = f"{pair.schema}.t"
    before = dump_catalog(given.catalog)

    with PausingLake.connect(given.of("reader").sqlalchemy_url) as lake:
        found = {name: outcome(lambda act=act: act(lake, t, pair.then)) for name, act in READS.items()}
        assert found == dict.fromkeys(READS, "done")
        assert lake.read_arrow(t).num_rows > 0
        assert dump_catalog(given.catalog) == before

        nothing_to_do = ("flush", "update none") if given.catalog.kind == "mariadb" else ()
        verbs = [one for one in VERBS if one.name not in nothing_to_do]
        acts = {one.name: lambda one=one: one.act(lake, pair) for one in verbs}
        acts |= {name: lambda act=act: act(lake, pair) for name, act in UPKEEP.items()}
        acts["set_option"] = lambda: lake.set_option("parquet_compression", "zstd")
        refused(given.catalog, acts)


def test_a_reader_has_no_right_but_to_read(given):
    name = given.names["reader"]
    if given.catalog.kind == "postgres":
        of_tables = "information_schema.table_privileges"
        query = f"SELECT DISTINCT privilege_type FROM {of_tables} WHERE grantee = '{name}'"
        with psycopg.connect(given.catalog.location) as connection:
            assert connection.execute(query).fetchall() == [("SELECT",)]
        return
    with admin(int(given.catalog.server["port"])) as cursor:
        cursor.execute(f"SHOW GRANTS FOR {name}")
        granted = {row[0].partition(" ON ")[0] for row in cursor.fetchall()}
    assert granted == {"GRANT USAGE", "GRANT SELECT"}


def test_a_writer_writes_and_alters_and_is_refused_upkeep(given, files, seed, size):
    writer = given.of("writer")
    draw = random.Random(seed)
    chosen = WRITER_VERBS if size == "full" else draw.sample(WRITER_VERBS, WRITES_IN_CI)
    with PausingLake.connect(writer.sqlalchemy_url) as lake:
        for number, verb in enumerate(chosen):
            made_by = given.of(draw.choice(["writer", "maintainer"]))
            pair = new_pair(made_by, files, number)
            assert (verb.name, outcome(lambda v=verb, p=pair: v.act(lake, p))) == (verb.name, "done")
        pair = new_pair(writer, files, len(chosen))
        for name, act in MORE.items():
            assert (name, outcome(lambda act=act: act(lake, f"{pair.schema}.t"))) == (name, "done")
        assert lake.verify() == []

        plant(given.catalog, pair)
        refused(given.catalog, {name: lambda act=act: act(lake, pair) for name, act in UPKEEP.items()})


def test_a_maintainer_keeps_up_what_writers_made_and_readers_go_on(given, files):
    pair = new_pair(given.of("writer"), files)
    plant(given.catalog, pair)
    t = f"{pair.schema}.t"
    with PausingLake.connect(given.of("maintainer").sqlalchemy_url) as lake:
        lake.append_arrow(t, given_rows())
        lake.flush_inlined_data()
        for name, act in UPKEEP.items():
            assert (name, outcome(lambda act=act: act(lake, pair))) == (name, "done")
        rows = lake.read_arrow(t).num_rows
        assert lake.verify() == []

    given.grant()
    with Lake.connect(given.of("writer").sqlalchemy_url) as lake:
        lake.append_arrow(t, given_rows())
    with Lake.connect(given.of("reader").sqlalchemy_url) as lake:
        assert lake.read_arrow(t).num_rows == rows + given_rows().num_rows


def test_duckdb_has_the_same_roles(new_catalog, files, seed, size):
    catalog = new_catalog("postgres")
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        lake.set_option("data_inlining_row_limit", 10)
    of_maintainers = [one for one in STATEMENTS if one.name in ("merge_adjacent", "expire")]
    of_writers = [one for one in STATEMENTS if one not in of_maintainers]
    if size != "full":
        of_writers = random.Random(seed).sample(of_writers, 4)
    with users(catalog) as made:
        made.grant()
        for number, statement in enumerate(of_writers):
            pair = new_pair(made.of("writer"), files, number)
            by_duckdb(made.of("writer"), statement.text.replace("{s}", pair.schema))
        pair = new_pair(made.of("writer"), files, len(of_writers))

        with open_lake(made.of("reader")) as duck:
            assert duck.sql(f"SELECT count(*) FROM {pair.schema}.t") == [(79,)]
            assert len(duck.sql("FROM lake.snapshots()")) > 3
        before = dump_catalog(catalog)
        for role, of_role in (("reader", STATEMENTS), ("writer", of_maintainers)):
            with open_lake(made.of(role)) as duck:
                for statement in of_role:
                    with pytest.raises(duckdb.Error, match="permission denied"):
                        duck.sql(statement.text.replace("{s}", pair.schema))
        assert dump_catalog(catalog) == before

        with open_lake(made.of("maintainer")) as duck:
            for name in ("flush", "merge_adjacent", "rewrite", "expire"):
                text = next(one.text for one in STATEMENTS if one.name == name)
                duck.sql(text.replace("{s}", pair.schema))
            duck.sql("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")
        with Lake.connect(made.of("reader").sqlalchemy_url) as lake:
            assert lake.verify() == []


def test_duckdb_reads_mariadb_as_a_reader(mariadb_catalog, files):
    Lake.create(mariadb_catalog.sqlalchemy_url, mariadb_catalog.data_path).close()
    with users(mariadb_catalog) as made:
        made.grant()
        pair = new_pair(made.of("writer"), files)

        with open_lake(made.of("reader"), read_only=True) as reference:
            assert reference.sql(f"SELECT count(*) FROM {pair.schema}.t") == [(79,)]
        with open_lake(made.of("reader")) as duck, pytest.raises(duckdb.Error, match="denied"):
            duck.sql(f"CREATE TABLE {pair.schema}.x (i INTEGER)")


def test_several_people_write_as_one_role(postgres_catalog, files):
    """Tables of inlined rows belong to the role then, and not to whoever came first."""
    with Lake.create(postgres_catalog.sqlalchemy_url, postgres_catalog.data_path) as lake:
        lake.set_option("data_inlining_row_limit", 10)
    with users(postgres_catalog) as made:
        made.grant()
        names = [f"{one}_{uuid.uuid4().hex[:8]}" for one in ("ann", "bob")]
        role, database = made.names["writer"], postgres_catalog.database
        for one in names:
            run(
                postgres_catalog,
                f"CREATE ROLE {one} LOGIN",
                f"GRANT {role} TO {one}",
                f"ALTER ROLE {one} IN DATABASE {database} SET role = '{role}'",
            )
        ann, bob = (as_user(postgres_catalog, one) for one in names)

        pair = new_pair(ann, files)
        t = f"{pair.schema}.t"
        with Lake.connect(bob.sqlalchemy_url) as lake, lake.transaction() as tx:
            tx.delete_rows(t, "id = 100")
            tx.append_arrow(t, given_rows())
        by_duckdb(ann, f"DELETE FROM {t} WHERE id IN (1, 101)")
        with Lake.connect(made.of("maintainer").sqlalchemy_url) as lake:
            assert lake.flush_inlined_data()
            assert lake.verify() == []
        run(postgres_catalog, f"DROP ROLE {', '.join(names)}")


def test_a_writer_flushes_rows_that_were_inlined_before_the_grants(postgres_catalog):
    with Lake.create(postgres_catalog.sqlalchemy_url, postgres_catalog.data_path) as lake:
        alone(lake).create_table("t", given_rows().schema)
        lake.append_arrow("t", given_rows())
    with users(postgres_catalog) as made:
        made.grant()
        with Lake.connect(made.of("writer").sqlalchemy_url) as lake:
            assert [one.row_count for one in lake.flush_inlined_data()] == [1]
            assert lake.read_arrow("t").equals(given_rows())
            assert lake.verify() == []


def test_a_writer_notes_everything_of_a_job_that_outlives_its_task(given):
    key, job_id = CommitKey(("dag", "task")), str(uuid.uuid4())
    directory = job_directory(f"{given.catalog.data_path}main/t/", job_id)
    job = SubmittedJob(job_id, key.digest, 1, "try 1", SnapshotId(0), directory, "0" * 64, "here", "try 1")
    with Lake.connect(given.of("writer").sqlalchemy_url) as lake:
        jobs = lake.jobs
        jobs.register(job_id, directory)
        jobs.note_submitted(job)
        jobs.note_named(replace(job, attended_by="try 2", application="app-2"))
        jobs.note_named(replace(job, application="app-1"))
        noted = jobs.submitted(job_id)
        assert noted is not None
        assert noted.application == "app-1"
        jobs.note_submitted(replace(noted, attended_by="try 2"))
        jobs.forget_submitted(job_id)
        jobs.note_submitted(job)
        jobs.forget_submitted_of(key)
        jobs.release(job_id)

        assert jobs.submitted(job_id) is None
        assert jobs.protected_prefixes() == frozenset()


class RanError(Exception):
    """A job was started."""


class Job(ArrowSubmitter):
    def run(self, *_: object) -> NoReturn:
        raise RanError


def test_a_merge_that_would_be_refused_starts_no_job(given, files):
    pair = new_pair(given.of("writer"), files)
    verb = Compact.merging(f"{pair.schema}.t")
    ends = {"reader": CatalogRefusedError, "writer": CatalogRefusedError, "maintainer": RanError}
    for role, error in ends.items():
        with Lake.connect(given.of(role).sqlalchemy_url) as lake, pytest.raises(error):
            compact(verb, lake, Job(), CommitInfo())


@pytest.mark.parametrize("kind", KINDS)
def test_a_user_without_any_right_is_told_what_to_do(new_catalog, kind):
    catalog = new_catalog(kind)
    Lake.create(catalog.sqlalchemy_url, catalog.data_path).close()
    with users(catalog) as made:
        with pytest.raises(CatalogError, match=r"(?i)denied.*docs/roles\.md"):
            Lake.connect(made.of("reader").sqlalchemy_url)
        made.grant()
        if kind == "postgres":
            run(catalog, f"REVOKE SELECT ON ducklake_column FROM {made.names['reader']}")
            with (
                Lake.connect(made.of("reader").sqlalchemy_url) as lake,
                pytest.raises(CatalogRefusedError, match=r"lacks SELECT, .* on ducklake_column\."),
            ):
                lake.verify()


def test_roles_in_a_schema_of_the_catalogs_own(postgres_catalog):
    schema, url = 'the "lake" of % us', postgres_catalog.sqlalchemy_url
    with Lake.create(url, postgres_catalog.data_path, metadata_schema=schema) as lake:
        lake.set_option("data_inlining_row_limit", 10)
    with users(postgres_catalog) as made:
        run(postgres_catalog, *statements(postgres_catalog, made.names, schema))

        def opened(role: str) -> Lake:
            return Lake.connect(made.of(role).sqlalchemy_url, metadata_schema=schema)

        with opened("writer") as lake:
            with lake.transaction() as tx:
                tx.create_table("t", {"id": "int64", "n": "int32", "part": "varchar"})
                tx.append_arrow("t", given_rows())
            with pytest.raises(CatalogError, match="may not alter the catalog's tables"):
                lake.migrate("1.1")
        with opened("reader") as lake:
            assert lake.read_arrow("t").num_rows == 1
            lacks = "lacks INSERT, UPDATE, DELETE on ducklake_metadata"
            with pytest.raises(CatalogRefusedError, match=lacks):
                lake.append_arrow("t", given_rows())
        with opened("maintainer") as lake:
            assert lake.flush_inlined_data()
            lake.migrate("1.1")
        with opened("reader") as lake:
            assert lake.read_arrow("t").num_rows == 1


def test_a_database_whose_name_looks_like_another_ones_is_not_granted(mariadb_catalog):
    """In GRANT the name of a database is a pattern: ``_`` stands for any character."""
    other = mariadb_catalog.database.replace("_", "x")
    Lake.create(mariadb_catalog.sqlalchemy_url, mariadb_catalog.data_path).close()
    run(mariadb_catalog, f"CREATE DATABASE {other}", f"CREATE TABLE {other}.t (i INT)")
    try:
        with users(mariadb_catalog) as made:
            made.grant()
            user = made.of("maintainer").server["user"]
            with (
                pymysql.connect(
                    host="127.0.0.1", port=int(mariadb_catalog.server["port"]), user=user
                ) as theirs,
                theirs.cursor() as cursor,
                pytest.raises(pymysql.err.OperationalError, match="denied"),
            ):
                cursor.execute(f"SELECT * FROM {other}.t")
    finally:
        run(mariadb_catalog, f"DROP DATABASE {other}")


def test_restores_that_only_snapshots_tell_of_are_not_forgotten(postgres_catalog):
    """The table of restores begins with them, whoever makes it."""
    with Lake.create(postgres_catalog.sqlalchemy_url, postgres_catalog.data_path) as lake:
        alone(lake).create_table("t", {"id": "int64"})
        alone(lake).append_arrow("t", pa.table({"id": pa.array([1], pa.int64())}))
        lake.restore("t", at=1)
        known = lake.reads.restored_tables()
        run(postgres_catalog, "DROP TABLE airflow_ducklake_restore")
        with users(postgres_catalog) as made:
            made.grant()

            assert lake.reads.restored_tables() == known
            assert known


def test_mariadb_has_roles_that_people_have(mariadb_catalog, files):
    Lake.create(mariadb_catalog.sqlalchemy_url, mariadb_catalog.data_path).close()
    person, role = (f"{one}_{uuid.uuid4().hex[:8]}" for one in ("ann", "lake writer"))
    run(mariadb_catalog, f"CREATE USER {person}", f"CREATE ROLE `{role}`", f"GRANT `{role}` TO {person}")
    run(mariadb_catalog, f"SET DEFAULT ROLE `{role}` {'TO' if is_mysql(mariadb_catalog) else 'FOR'} {person}")
    try:
        granted = statements(mariadb_catalog, {"writer": role})
        run(mariadb_catalog, *(one for one in granted if f"`{role}`" in one))

        pair = new_pair(as_user(mariadb_catalog, person), files)
        with Lake.connect(mariadb_catalog.sqlalchemy_url) as lake:
            assert lake.row_count(f"{pair.schema}.t") == 79
    finally:
        run(mariadb_catalog, f"DROP ROLE `{role}`", f"DROP USER {person}")


def test_the_pages_own_names_work(postgres_catalog):
    make, grant, join = blocks("postgres")
    catalog = postgres_catalog
    Lake.create(catalog.sqlalchemy_url, catalog.data_path).close()
    grant, join = (text.replace("DATABASE lake", f"DATABASE {catalog.database}") for text in (grant, join))
    try:
        run(catalog, make, grant, join)
        with Lake.connect(as_user(catalog, "etl").sqlalchemy_url) as lake:
            alone(lake).create_table("t", {"id": "int64"})
            with pytest.raises(
                CatalogRefusedError, match=r"The user ducklake_writer lacks .*DELETE on ducklake_"
            ):
                lake.expire_snapshots(keep_last=1)
    finally:
        drop_roles(catalog, "ducklake_reader", "ducklake_writer", "ducklake_maintainer", "etl")


COLUMNS = """
SELECT table_name, column_name, data_type, character_maximum_length, is_nullable
FROM information_schema.columns
WHERE table_name IN ('airflow_ducklake_mark', 'airflow_ducklake_restore') ORDER BY 1, 2
"""


def test_the_tables_that_the_page_makes_are_those_of_the_library(postgres_catalog, new_catalog):
    ours = new_catalog("postgres")
    found = []
    for catalog in (postgres_catalog, ours):
        with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake, users(catalog) as made:
            if catalog is ours:
                RESTORES.ensure(lake.opened.catalog)
                MARKS.ensure(lake.opened.catalog)
            else:
                made.grant()
            with psycopg.connect(catalog.location) as connection:
                found.append(connection.execute(COLUMNS).fetchall())
    assert found[0] == found[1]
    assert len(found[0]) == 7
