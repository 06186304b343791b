"""Several staged writes become one snapshot or none: as the library has it, judged by DuckDB."""

import json
import shutil
import sqlite3
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from threading import Barrier

import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake import errors
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.format.snapshots import CommitInfo, CommitKey, CommittedSnapshot
from airflow_provider_ducklake.lake.planning.writing.staged import StagedWrite
from airflow_provider_ducklake.lake.spark.job import io as job_io
from airflow_provider_ducklake.lake.spark.job.codec import FORMAT_VERSION
from airflow_provider_ducklake.lake.storage.files import writing
from airflow_provider_ducklake.lake.writes.staged import commit_writes, discard, read_staged, tidy_up
from airflow_provider_ducklake.lake.writes.verb import Commit
from tests.interop.jobs import rows_of, stage
from tests.interop.lakes import alone, by_duckdb
from tests.reference.catalog_dump import assert_catalogs_equal, dump_catalog
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake

INFO = CommitInfo("me", "staged")
TABLES = "CREATE TABLE orders (id BIGINT); CREATE TABLE lines (id BIGINT)"


@pytest.fixture
def lake(request: pytest.FixtureRequest) -> Iterator[Lake]:
    """A lake with the tables orders and lines, in the catalog that the test asks for."""
    name = "catalog" if "catalog" in request.fixturenames else "sqlite_catalog"
    catalog: CatalogDatabase = request.getfixturevalue(name)
    by_duckdb(catalog, *TABLES.split(";"), data_inlining_row_limit=0)
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        lake.writes.keyed_commit(CommitKey(("the first makes the table of keys",)))
        yield lake


def commit(lake: Lake, *staged: StagedWrite, key: str | None = None) -> CommittedSnapshot | None:
    keyed = lake.writes.keyed_commit(CommitKey((key or str(uuid.uuid4()),)))
    return commit_writes(lake, staged, Commit(INFO, keyed))


def duckdb(catalog: CatalogDatabase, sql: str) -> list[tuple]:
    return by_duckdb(catalog, sql, data_inlining_row_limit=0)


def ids(catalog: CatalogDatabase, table: str = "orders") -> list[int]:
    return [row for (row,) in duckdb(catalog, f"SELECT id FROM {table} ORDER BY id")]


def is_open(lake: Lake, staged: StagedWrite) -> bool:
    return lake.jobs.registered([staged.job_id])[staged.job_id].released_at is None


# --- one snapshot ---


def test_staged_writes_are_as_if_one_transaction_had_inserted_them(catalog, reference_catalog, lake):
    staged = [stage(lake, table, rows) for table, rows in (("orders", rows_of(1, 2)), ("lines", rows_of(5)))]
    staged.append(stage(lake, "orders", rows_of(3)))
    assert (ids(catalog), ids(catalog, "lines")) == ([], [])
    before = dump_catalog(catalog)

    committed = commit(lake, *staged)

    assert committed.id == max(row["snapshot_id"] for row in before["ducklake_snapshot"]) + 1
    assert (ids(catalog), ids(catalog, "lines")) == ([1, 2, 3], [5])
    with open_lake(reference_catalog, data_inlining_row_limit=0) as reference:
        for statement in TABLES.split(";"):
            reference.sql(statement)
        reference.sql(
            "BEGIN; INSERT INTO orders VALUES (1), (2); INSERT INTO lines VALUES (5);"
            "INSERT INTO orders VALUES (3);"
            "CALL ducklake_set_commit_message('lake', 'me', 'staged'); COMMIT"
        )
    # Our files lie in the folders of their jobs, and our snapshot says by which key it was made.
    ignored = {"ducklake_data_file.path", "ducklake_snapshot_changes.commit_extra_info"}
    assert_catalogs_equal(dump_catalog(catalog), dump_catalog(reference_catalog), ignored)


def test_several_tables_are_created_in_one_snapshot_one_of_them_by_two_writes(catalog, lake):
    two_columns = pa.table({"id": pa.array([7], pa.int64()), "name": ["x"]})
    staged = [
        stage(lake, "first", rows_of(1), creates=True),
        stage(lake, "second", two_columns, creates=True),
        stage(lake, "FIRST", rows_of(2), creates=True),
        stage(lake, "odd näme", rows_of(3), creates=True),
        stage(lake, "odd näme", rows_of(4), creates=True),
        stage(lake, "empty", rows_of(), creates=True),
        stage(lake, "orders", rows_of(9)),
    ]

    committed = commit(lake, *staged)

    assert duckdb(catalog, "FROM second") == [(7, "x")]
    assert (ids(catalog, "first"), ids(catalog, '"odd näme"')) == ([1, 2], [3, 4])
    assert (ids(catalog, "empty"), ids(catalog)) == ([], [9])
    assert duckdb(catalog, "SELECT count(*) FROM ducklake_snapshots('lake') WHERE snapshot_id > 2") == [(1,)]
    assert committed.id == 3
    assert not any(is_open(lake, one) for one in staged)


@pytest.mark.parametrize("schema", ["new", '"odd näme"'])
def test_a_schema_is_created_with_its_first_tables(catalog, lake, schema):
    names = [f"{schema}.{table}" for table in ("first", "second", "FIRST", '"odd näme"')]
    staged = [stage(lake, name, rows_of(number), creates=True) for number, name in enumerate(names)]

    commit(lake, *staged)

    assert (ids(catalog, names[0]), ids(catalog, names[1]), ids(catalog, names[3])) == ([0, 2], [1], [3])


@pytest.mark.parametrize("schema", ["new", '"odd näme"'])
def test_a_schema_and_its_table_are_as_if_one_transaction_had_made_them(
    catalog, reference_catalog, lake, schema
):
    commit(lake, stage(lake, f"{schema}.t", rows_of(*range(20)), creates=True))

    with open_lake(reference_catalog) as reference:
        for statement in TABLES.split(";"):
            reference.sql(statement)
        reference.sql(
            f"BEGIN; CREATE SCHEMA {schema}; CREATE TABLE {schema}.t AS SELECT range AS id FROM range(20);"
            "CALL ducklake_set_commit_message('lake', 'me', 'staged'); COMMIT"
        )
    ignored = {"ducklake_data_file.path", "ducklake_snapshot_changes.commit_extra_info"}
    ours, theirs = dump_catalog(catalog), dump_catalog(reference_catalog)
    of_tables = {name for name in theirs if "ducklake_inlined" in name} | {"ducklake_inlined_data_tables"}
    assert_catalogs_equal(ours, theirs, ignored | of_tables)


def test_a_schema_that_came_to_be_meanwhile_takes_the_tables(sqlite_catalog, lake):
    staged = [stage(lake, f"new.{table}", rows_of(1), creates=True) for table in ("a", "b")]
    duckdb(sqlite_catalog, "CREATE SCHEMA NEW")
    duckdb(sqlite_catalog, "CREATE TABLE new.b AS SELECT 2::BIGINT AS id")

    commit(lake, *staged)

    assert (ids(sqlite_catalog, "new.a"), ids(sqlite_catalog, "new.b")) == ([1], [1, 2])
    assert duckdb(
        sqlite_catalog, "SELECT DISTINCT table_schema FROM information_schema.tables ORDER BY 1"
    ) == [("NEW",), ("main",)]


def test_a_table_of_a_new_schema_can_be_read_before_its_commit(lake):
    staged = stage(lake, "new.t", rows_of(1, 2), creates=True)

    assert lake.read_arrow("new.t", staged=[staged]).column("id").to_pylist() == [1, 2]
    with pytest.raises(errors.SchemaNotFoundError, match=r"Schema 'new' does not exist"):
        lake.read_arrow("new.t")


def test_a_nested_schema_is_created_in_the_one_that_is_there(tmp_path):
    with Lake.create(f"sqlite:///{tmp_path}/lake.sqlite", f"{tmp_path}/files/", version="1.1") as lake:
        lake.writes.keyed_commit(CommitKey(("the first makes the table of keys",)))
        with pytest.raises(errors.SchemaNotFoundError, match=r"Schema 'sales' does not exist"):
            stage(lake, "sales.europe.t", rows_of(1), creates=True)
        alone(lake).create_schema("Sales")
        staged = [stage(lake, f"sales.europe.{name}", rows_of(1), creates=True) for name in ("t", "u")]

        commit(lake, *staged)

        assert [str(one.qualified) for one in lake.reads.table_rows()] == ["Sales.europe.t", "Sales.europe.u"]
        for name in ("t", "u"):
            assert lake.read_arrow(f"sales.europe.{name}").column("id").to_pylist() == [1]


def test_nested_schemas_need_ducklake_1_1(lake):
    with pytest.raises(errors.UnsupportedFeatureError, match=r"1\.1"):
        stage(lake, "sales.europe.t", rows_of(1), creates=True)


def test_writes_that_create_different_tables_of_one_name_are_refused(sqlite_catalog, lake):
    others = pa.table({"id": pa.array([7], pa.int32())})
    staged = [stage(lake, "fresh", rows_of(1), creates=True), stage(lake, "fresh", others, creates=True)]

    with pytest.raises(errors.InvalidInputError, match=r"Two staged writes create main\.fresh") as refused:
        commit(lake, *staged)

    assert all(one.directory in str(refused.value) for one in staged)
    assert commit(lake, staged[1]) is not None
    assert ids(sqlite_catalog, "fresh") == [7]


def test_a_table_that_came_to_be_meanwhile_takes_the_rows_if_it_is_equal(sqlite_catalog, lake):
    staged = stage(lake, "fresh", rows_of(1), creates=True)
    other = stage(lake, "other", rows_of(1), creates=True)
    duckdb(sqlite_catalog, "CREATE TABLE fresh (id BIGINT); CREATE TABLE other (id INT)")
    duckdb(sqlite_catalog, "INSERT INTO fresh VALUES (2), (3)")
    duckdb(sqlite_catalog, "DELETE FROM fresh WHERE id = 3")  # no conflict: the rows follow what is there now

    with pytest.raises(errors.TransactionConflictError, match="other columns or partition keys"):
        commit(lake, staged, other)
    assert ids(sqlite_catalog, "fresh") == [2]

    commit(lake, staged)
    assert ids(sqlite_catalog, "fresh") == [1, 2]


def test_writes_without_rows_make_no_snapshot_and_are_done_with(lake):
    before = lake.current_snapshot().id
    staged = stage(lake, "orders", rows_of())

    assert commit(lake, staged) is None

    assert lake.current_snapshot().id == before
    assert not is_open(lake, staged)


# --- conflicts ---


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE orders ADD COLUMN late INT",
        "ALTER TABLE orders SET PARTITIONED BY (id)",
        "DROP TABLE orders",
        "DROP TABLE orders; CREATE TABLE orders (id BIGINT)",
    ],
)
def test_each_write_conflicts_with_what_came_after_its_own_plan(sqlite_catalog, lake, sql):
    duckdb(sqlite_catalog, "INSERT INTO orders VALUES (1)")
    early = stage(lake, "orders", rows_of(10))
    duckdb(sqlite_catalog, sql)
    late = stage(lake, "lines", rows_of(20))
    before = dump_catalog(sqlite_catalog)

    with pytest.raises(errors.TransactionConflictError, match=r"main\.orders"):
        commit(lake, late, early)

    assert dump_catalog(sqlite_catalog) == before
    assert is_open(lake, early)
    commit(lake, late)
    assert ids(sqlite_catalog, "lines") == [20]


def test_a_write_planned_after_an_alteration_goes_with_an_earlier_one(sqlite_catalog, lake):
    early = stage(lake, "lines", rows_of(10))
    duckdb(sqlite_catalog, "ALTER TABLE orders ADD COLUMN late INT; INSERT INTO lines VALUES (1)")
    late = stage(
        lake, "orders", pa.table({"id": pa.array([5], pa.int64()), "late": pa.array([6], pa.int32())})
    )

    commit(lake, early, late)

    assert ids(sqlite_catalog, "lines") == [1, 10]
    assert duckdb(sqlite_catalog, "FROM orders") == [(5, 6)]


def test_a_write_is_committed_once_whoever_commits_it(catalog, lake):
    staged, other = stage(lake, "orders", rows_of(1)), stage(lake, "lines", rows_of(2))
    commit(lake, staged)
    before = dump_catalog(catalog)

    with pytest.raises(errors.FilesReleasedError, match=staged.job_id):
        commit(lake, staged, other)
    with pytest.raises(errors.InvalidInputError, match="given twice"):
        commit(lake, other, other)

    assert dump_catalog(catalog) == before
    assert is_open(lake, other)


def test_the_same_commit_again_is_the_first_one(sqlite_catalog, lake):
    staged = stage(lake, "orders", rows_of(1))
    first = commit(lake, staged, key="one")
    keyed = lake.writes.keyed_commit(CommitKey(("one",)))

    again = commit_writes(lake, [staged], Commit(INFO, keyed))

    assert (again.id, again.is_earlier) == (first.id, True)
    assert ids(sqlite_catalog) == [1]


# --- audits ---


@pytest.mark.drawn(one_in=1)  # every day: what it protects, nothing else does
def test_a_table_can_be_read_as_it_would_be(sqlite_catalog, lake):
    first = stage(lake, "orders", rows_of(1, 2))
    duckdb(sqlite_catalog, "INSERT INTO orders VALUES (50)")
    second, other = stage(lake, "orders", rows_of(3)), stage(lake, "lines", rows_of(9))
    fresh = [stage(lake, "fresh", rows_of(6), creates=True), stage(lake, "fresh", rows_of(7), creates=True)]
    staged = [first, second, other, *fresh]

    def read(table: str, **arguments) -> list[int]:
        return sorted(lake.read_arrow(table, staged=staged, **arguments)["id"].to_pylist())

    assert read("orders") == [1, 2, 3, 50]
    assert read("main.LINES", columns=["id"]) == [9]
    assert read("FRESH") == [6, 7]
    assert lake.read_arrow("orders")["id"].to_pylist() == [50]
    with pytest.raises(errors.TableNotFoundError):
        read("absent")
    with pytest.raises(errors.InvalidInputError, match="leave out at"):
        read("orders", at=1)
    commit(lake, *staged)
    assert lake.read_arrow("orders").num_rows == 4


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("ALTER TABLE orders ADD COLUMN late INT", "other columns or partition keys"),
        ("DROP TABLE orders; CREATE TABLE orders (id BIGINT)", "another table of that name"),
    ],
)
def test_an_audit_fails_where_the_commit_would(sqlite_catalog, lake, sql, problem):
    staged = stage(lake, "orders", rows_of(1))
    duckdb(sqlite_catalog, sql)

    with pytest.raises(errors.TransactionConflictError, match=problem):
        lake.read_arrow("orders", staged=[staged])
    with pytest.raises(errors.TransactionConflictError):
        commit(lake, staged)


# --- the registry ---


@pytest.mark.every_catalog(mariadb="daily", duckdb="daily")
@pytest.mark.drawn(one_in=1)
def test_jobs_are_protected_until_they_are_released_or_too_old(catalog):
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        assert lake.jobs.protected_prefixes() == frozenset()
        assert lake.jobs.registered(["a"]) == {}
        places = {job_id: f"{catalog.data_path}main/ü/ducklake-{job_id}/" for job_id in ("a", "A", "b")}
        for job_id, place in places.items():
            lake.jobs.register(job_id, place)

        assert lake.jobs.protected_prefixes() == set(places.values())
        assert lake.jobs.protected_prefixes(timedelta(0)) == frozenset()
        assert (lake.jobs.release("a"), lake.jobs.release("a"), lake.jobs.release("unknown")) == (
            True,
            False,
            False,
        )
        assert lake.jobs.protected_prefixes(timedelta(hours=1)) == {places["A"], places["b"]}
        known = lake.jobs.registered(["a", "b", "c"])
        assert known.keys() == {"a", "b"}
        assert known["a"].registered_at < known["a"].released_at
        assert (known["b"].prefix, known["b"].released_at) == (places["b"], None)
        assert lake.jobs.snapshot_of("b") is None


@pytest.mark.every_catalog
def test_a_commit_releases_its_jobs_and_their_files_are_found_for_as_long_as_they_are_the_lakes(catalog):
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        alone(lake).create_table("orders", {"id": "int64"})
        staged = stage(lake, "orders", rows_of(1, 2))

        committed = commit(lake, staged)

        assert lake.read_arrow("orders")["id"].to_pylist() == [1, 2]
        assert (is_open(lake, staged), lake.jobs.snapshot_of(staged.job_id)) == (False, committed.id)
        with pytest.raises(errors.FilesReleasedError):
            commit(lake, staged)
        alone(lake).truncate("orders")
        assert lake.jobs.snapshot_of(staged.job_id) == committed.id
        lake.expire_snapshots(keep_last=1)
        assert lake.jobs.snapshot_of(staged.job_id) == 0


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "mariadb"])
def test_of_two_who_commit_or_discard_one_write_at_once_one_wins(new_catalog, kind):
    """Each round commits two writes of its own as well: those land, whoever else commits."""
    catalog = new_catalog(kind)
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        alone(lake).create_table("orders", {"id": "int64"})
        for number in range(4):
            shared = stage(lake, "orders", rows_of(number))
            own = [stage(lake, "orders", rows_of(100 + number)), stage(lake, "orders", rows_of(200 + number))]
            outcomes = at_once(catalog, [[shared], [shared], [own[0]], [own[1]]], discarded=number % 2)

            won = [outcome for outcome in outcomes[:2] if outcome]
            assert len(won) == 1
            assert all(outcomes[2:])
            found = sorted(lake.read_arrow("orders")["id"].to_pylist())
            expected = {100 + number, 200 + number} | ({number} if won[0] == "committed" else set())
            assert {one for one in found if one % 100 == number} == expected
            assert len(found) == len(set(found))


def at_once(catalog: CatalogDatabase, tasks: list[list[StagedWrite]], discarded: int) -> list[str | None]:
    """Commit each list from a lake of its own, all at one moment; the one at `discarded` > 0 is discarded."""
    barrier = Barrier(len(tasks))

    def run(place: int) -> str | None:
        with Lake.connect(catalog.sqlalchemy_url) as lake:
            barrier.wait()
            try:
                if discarded and place == discarded:
                    return "discarded" if lake.jobs.release(tasks[place][0].job_id) else None
                return "committed" if commit(lake, *tasks[place]) else None
            except errors.FilesReleasedError:
                return None

    with ThreadPoolExecutor(len(tasks)) as pool:
        return list(pool.map(run, range(len(tasks))))


DAMAGES = {
    "{}": errors.SparkJobError,
    "no JSON": errors.SparkJobError,
    json.dumps({"v": FORMAT_VERSION, "job_id": "another"}): errors.SparkJobError,
    json.dumps(
        {"v": FORMAT_VERSION, "job_id": "JOB", "results": [{"parts": ["../x"]}]}
    ): errors.UntrustedValueError,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_staged_write_does_not_keep_the_others_from_being_discarded(lake, damage):
    """Its files are told by their place and name: those in folders of partitions begin with the job's id."""
    damaged, other = stage(lake, "orders", rows_of(1)), stage(lake, "orders", rows_of(2))
    uris = [job_io.stage_uri(one.directory) for one in (damaged, other)]
    root = Path(damaged.directory).parent
    in_partition = root / "day=1" / f"ducklake-{damaged.job_id}-0.parquet"
    neighbour = root / "day=1" / f"ducklake-{uuid.uuid4()}-0.parquet"
    in_partition.parent.mkdir()
    for path in (in_partition, neighbour):
        path.touch()
    Path(damaged.directory, "_DONE").write_text(damage.replace("JOB", damaged.job_id))

    with pytest.raises(DAMAGES[damage], match="_DONE") as failure:
        discard(lake, uris)

    (note,) = failure.value.__notes__
    assert note.startswith(f"The staged write {uris[0]} was discarded")
    assert [path for path in root.rglob("*") if path.is_file()] == [neighbour]
    assert not is_open(lake, damaged)
    assert not is_open(lake, other)
    assert discard(lake, uris) == []


def test_of_a_damaged_staged_write_that_was_committed_only_the_documents_go(sqlite_catalog, lake):
    staged = [stage(lake, "orders", rows_of(number)) for number in (1, 2)]
    uris = [job_io.stage_uri(one.directory) for one in staged]
    commit(lake, *staged)
    Path(staged[0].directory, "_DONE").write_text("{}")

    tidy_up(lake, uris)

    assert [{path.suffix for path in Path(one.directory).iterdir()} for one in staged] == [{".parquet"}] * 2
    assert ids(sqlite_catalog) == [1, 2]


def test_sealed_documents_count_only_in_the_directory_for_which_their_job_was_registered(
    sqlite_catalog, lake, monkeypatch
):
    monkeypatch.setattr(writing, "_known", {lake.data_path: writing._Known(bytes(32))})
    staged = stage(lake, "orders", rows_of(1))
    copied = f"{lake.table_snapshot('lines').root}{Path(staged.directory).name}/"
    shutil.copytree(staged.directory, copied)
    assert Path(copied, "_DONE").read_bytes().startswith(b"DLS2")

    with pytest.raises(errors.InvalidInputError, match="is not a staged write of this lake"):
        read_staged(lake, job_io.stage_uri(copied))
    with closing(sqlite3.connect(sqlite_catalog.location)) as database, database:
        database.execute("UPDATE airflow_ducklake_job SET prefix = ?", (copied,))
    with pytest.raises(errors.UntrustedValueError, match=r"is not what job .* was registered for"):
        read_staged(lake, job_io.stage_uri(copied))
