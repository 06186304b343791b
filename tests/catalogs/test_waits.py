"""Nothing waits for ever: for a lock, for a silent server; and who may only read holds no lock."""

import hashlib
import logging
import os
import re
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest
from sqlalchemy import event, make_url
from sqlalchemy.engine import URL

from airflow_provider_ducklake.lake.catalog.database import connect
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import (
    CatalogUnavailableError,
    CommitStateUnknownError,
    LockTimeoutError,
)
from tests.catalogs.database_roles import run, users
from tests.interop.lakes import alone
from tests.reference.catalogs import CatalogDatabase, data_directory, file_catalog
from tests.reference.silent import silent_server, talking_server

ROWS = pa.table({"id": pa.array([1], pa.int64())})
PATIENCE = 1.0
FILES = ("sqlite", "duckdb")
NOBODY = 65534  # a user who owns nothing here
# Of the advisory lock under which PostgreSQL's lakes are made, before there is a row to lock.
KEY_OF_CREATION = int.from_bytes(hashlib.sha256(b"ducklake commit public").digest()[:8], "big", signed=True)


def created(catalog: CatalogDatabase) -> None:
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        alone(lake).create_table("t", {"id": "int64"})
        lake.append_arrow("t", ROWS)


def limited(catalog: CatalogDatabase, **limits: float) -> URL:
    texts = {f"{name}_timeout_seconds": str(seconds) for name, seconds in limits.items()}
    return make_url(catalog.sqlalchemy_url).update_query_dict(texts)


@contextmanager
def stopped_writer(catalog: CatalogDatabase) -> Iterator[int]:
    """Yield the id of a process that holds our commit lock and was stopped then."""
    command = [sys.executable, "-m", "tests.catalogs.lock_holder", catalog.sqlalchemy_url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout.readline() == "held\n"
            os.waitid(os.P_PID, holder.pid, os.WSTOPPED | os.WNOWAIT)
            yield holder.pid
        finally:
            holder.kill()


@pytest.mark.every_catalog
def test_behind_a_writer_that_is_stopped_the_log_and_then_the_error_name_it(catalog, caplog):
    created(catalog)
    with Lake.connect(limited(catalog, lock=PATIENCE)) as lake:
        head = lake.current_snapshot().id
        with stopped_writer(catalog) as pid:
            started = time.time()
            with pytest.raises(LockTimeoutError) as raised:
                lake.tag("release", head)
            seconds = time.time() - started
        lake.tag("release", head)

    holder = f"process {pid} of " if catalog.kind in FILES else r"session \d+ of user (postgres|root)\b"
    assert re.search(rf"is held by the {holder}", str(raised.value))
    logged = [one for one in caplog.records if re.search(holder, one.getMessage())]
    assert [one.levelno for one in logged] == [logging.WARNING]
    assert 0.4 * PATIENCE < logged[0].created - started < seconds
    assert 0.9 * PATIENCE < seconds < 30  # on a machine that has much else to do


BETTER_FITS = (  # than PostgreSQL's own, for what is asked of a lock
    "CREATE TABLE ran (name text)",
    *(
        f"CREATE FUNCTION {name} LANGUAGE plpgsql AS $$ BEGIN INSERT INTO ran VALUES ('x'); {body} END $$"
        for name, body in {
            "public.cardinality(integer[]) RETURNS integer": "RETURN 0;",
            "public.unnest(integer[]) RETURNS SETOF integer": "RETURN NEXT 1;",
            "public.pg_blocking_pids(bigint) RETURNS integer[]": "RETURN ARRAY[]::integer[];",
            "public.pg_blocking_pids(smallint) RETURNS integer[]": "RETURN ARRAY[]::integer[];",
        }.items()
    ),
)


def test_asking_who_holds_a_lock_runs_no_function_of_a_writers(postgres_catalog):
    created(postgres_catalog)
    run(postgres_catalog, *BETTER_FITS)
    with (
        Lake.connect(limited(postgres_catalog, lock=PATIENCE)) as lake,
        stopped_writer(postgres_catalog),
        pytest.raises(LockTimeoutError, match="is held by the session"),
    ):
        lake.tag("release", 1)

    with psycopg.connect(postgres_catalog.location) as connection:
        assert connection.execute("SELECT name FROM ran").fetchall() == []


@pytest.mark.databases
def test_a_read_of_a_duckdb_file_behind_a_writer_that_is_stopped_ends_as_well(duckdb_catalog):
    created(duckdb_catalog)
    with (
        Lake.connect(limited(duckdb_catalog, lock=0.2)) as lake,
        stopped_writer(duckdb_catalog) as pid,
        pytest.raises(LockTimeoutError, match=f"held by the process {pid} of "),
    ):
        lake.read_arrow("t")


@pytest.mark.parametrize("lock", ["BEGIN IMMEDIATE", "BEGIN EXCLUSIVE", "BEGIN; SELECT * FROM sqlite_master"])
def test_a_lock_that_another_client_has_on_a_sqlite_file_names_its_process(sqlite_catalog, lock, caplog):
    created(sqlite_catalog)
    program = f"import sqlite3; c = sqlite3.connect({sqlite_catalog.location!r}, isolation_level=None); "
    program += f"[c.execute(one).fetchone() for one in {lock.split('; ')}]; "
    program += "print('held', flush=True); input()"
    command = [sys.executable, "-c", program]
    pipe = subprocess.PIPE
    with (
        Lake.connect(limited(sqlite_catalog, lock=0.2)) as lake,
        subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as holder,
    ):
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(LockTimeoutError, match=f"held by the process {holder.pid}"):
            lake.append_arrow("t", ROWS)
        holder.communicate("\n")
        lake.append_arrow("t", ROWS)
    (logged,) = (one.getMessage() for one in caplog.records if one.levelno == logging.WARNING)
    assert re.fullmatch(rf"Waiting for the lock of .*: it is held by the process {holder.pid}", logged)


@pytest.mark.parametrize("database", ["postgresql+psycopg", "mysql+pymysql"])
def test_a_server_that_never_greets_is_an_error_after_the_connect_timeout(database):
    with (
        silent_server() as port,
        pytest.raises(CatalogUnavailableError, match="Check that the database runs"),
    ):
        Lake.connect(f"{database}://ann:secret@127.0.0.1:{port}/lake?connect_timeout=1")


def of_postgres(kind: bytes, content: bytes) -> bytes:
    """Return a message of PostgreSQL's protocol."""
    return kind + struct.pack(">I", len(content) + 4) + content


def greet_as_postgres(connection: socket.socket) -> None:
    """Let anybody in, and wait for the first statement."""
    while connection.recv(4096)[4:8] in (struct.pack(">I", code) for code in (80877103, 80877104)):
        connection.sendall(b"N")  # neither TLS nor GSS
    told = {b"server_version": b"16.9", b"client_encoding": b"UTF8", b"standard_conforming_strings": b"on"}
    parameters = b"".join(of_postgres(b"S", name + b"\0" + value + b"\0") for name, value in told.items())
    connection.sendall(of_postgres(b"R", bytes(4)) + parameters + of_postgres(b"Z", b"I"))
    connection.recv(65_536)


NOTICE = of_postgres(b"N", b"SNOTICE\0VNOTICE\0C00000\0Mwait\0\0")
ENDLESS_ROW = b"d"  # a byte of a message whose length is huge


@pytest.mark.parametrize(
    "again", [NOTICE, pytest.param(ENDLESS_ROW, marks=pytest.mark.kills)], ids=["notices", "a row"]
)
def test_a_postgres_that_always_says_a_little_more_is_an_error_after_the_limit(again):
    def greet(connection: socket.socket) -> None:
        greet_as_postgres(connection)
        if again == ENDLESS_ROW:
            connection.sendall(b"D" + struct.pack(">I", 2**30))

    limits = "connect_timeout=1&lock_timeout_seconds=0.5&statement_timeout_seconds=1"
    with (
        talking_server(greet, again) as port,
        pytest.raises(CatalogUnavailableError, match="not answered for 1 s"),
    ):
        Lake.connect(f"postgresql+psycopg://ann:secret@127.0.0.1:{port}/lake?{limits}")


def test_a_mysql_that_always_says_a_little_more_is_an_error_after_the_limit():
    def begin_to_greet(connection: socket.socket) -> None:
        connection.sendall(b"\xff\xff\x00\x00")  # a packet of 64 KiB

    with (
        talking_server(begin_to_greet, b"x") as port,
        pytest.raises(CatalogUnavailableError, match="Check that the database runs"),
    ):
        Lake.connect(f"mysql+pymysql://ann:secret@127.0.0.1:{port}/lake?connect_timeout=1")


def stop_sessions(catalog: CatalogDatabase) -> list[int]:
    """Stop the server's processes of our sessions, which their sockets do not show."""
    query = "SELECT pid FROM pg_stat_activity WHERE application_name = 'airflow_provider_ducklake'"
    with psycopg.connect(catalog.location) as admin:
        found = [pid for (pid,) in admin.execute(f"{query} AND datname = current_database()")]
    for pid in found:
        os.kill(pid, signal.SIGSTOP)
    return found


@contextmanager
def stopped_sessions(catalog: CatalogDatabase) -> Iterator[None]:
    pids = stop_sessions(catalog)
    assert pids
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def test_a_statement_whose_server_process_is_stopped_is_an_error_and_the_next_one_connects_again(
    postgres_catalog, monkeypatch
):
    created(postgres_catalog)
    monkeypatch.setattr(connect, "_IDLE_SECONDS", 60)  # as one that was in use a moment ago
    with Lake.connect(limited(postgres_catalog, lock=0.2, statement=PATIENCE)) as lake:
        lake.append_arrow("t", ROWS)
        with stopped_sessions(postgres_catalog):
            with pytest.raises(CatalogUnavailableError, match="not answered for 1 s"):
                lake.read_arrow("t")
            assert lake.append_arrow("t", ROWS).attempts == 1


def test_a_commit_whose_server_process_is_stopped_may_have_landed_and_keeps_its_files(postgres_catalog):
    created(postgres_catalog)
    stopped = ExitStack()

    def stop(_connection, _cursor, statement, *_) -> None:
        if statement.endswith("COMMIT"):
            stopped.enter_context(stopped_sessions(postgres_catalog))

    with Lake.connect(limited(postgres_catalog, lock=0.2, statement=PATIENCE)) as lake, stopped:
        lake.set_option("data_inlining_row_limit", 0)
        event.listen(lake.opened.catalog.dialect.engine, "before_cursor_execute", stop)
        with pytest.raises(CommitStateUnknownError):
            lake.append_arrow("t", ROWS)

    assert len(list(Path(postgres_catalog.data_path).rglob("*.parquet"))) == 1


def test_an_idle_connection_whose_server_process_is_stopped_is_replaced(postgres_catalog, monkeypatch):
    created(postgres_catalog)
    monkeypatch.setattr(connect, "_IDLE_SECONDS", 0)
    monkeypatch.setattr(connect, "CONNECT_TIMEOUT_SECONDS", 0.3)
    with Lake.connect(postgres_catalog.sqlalchemy_url) as lake:
        lake.append_arrow("t", ROWS)
        with stopped_sessions(postgres_catalog):
            assert lake.append_arrow("t", ROWS).attempts == 1


def test_a_long_wait_for_an_answer_that_comes_is_none_for_a_lock(postgres_catalog, caplog):
    created(postgres_catalog)
    url = limited(postgres_catalog, lock=0.1, statement=30)
    with Lake.connect(url) as lake, lake.opened.reading() as connection:
        connection.exec_driver_sql("SELECT pg_sleep(0.5)")

    assert caplog.records == []


def test_a_reader_of_postgres_can_take_no_lock_that_a_commit_waits_for(postgres_catalog):
    created(postgres_catalog)
    locks = [
        *(
            f"SELECT * FROM ducklake_{table} FOR {strength}"
            for table in ("metadata", "snapshot", "data_file")
            for strength in ("UPDATE", "KEY SHARE")
        ),
        "LOCK TABLE ducklake_metadata IN ROW SHARE MODE",
        "SELECT * FROM ducklake_metadata",  # the lock of a table that is read
    ]
    refused = 0
    with users(postgres_catalog) as roles:
        roles.grant()
        with psycopg.connect(roles.of("reader").location) as reader:
            for lock in locks:
                try:
                    with reader.transaction():
                        reader.execute(lock)
                except psycopg.errors.InsufficientPrivilege:
                    refused += 1
            reader.execute("SELECT pg_advisory_lock(%s)", [KEY_OF_CREATION])
            with Lake.connect(limited(roles.of("writer"), lock=PATIENCE)) as lake:
                assert lake.append_arrow("t", ROWS).attempts == 1
    assert refused == len(locks) - 1


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("duckdb", marks=pytest.mark.databases)])
@pytest.mark.parametrize(("catalog_mode", "lock_mode"), [(0o644, 0o600), (0o664, 0o660)])
def test_nobody_opens_the_lock_file_who_may_not_write_the_catalog(tmp_path, kind, catalog_mode, lock_mode):
    catalog = file_catalog(kind, tmp_path)
    created(catalog)
    Path(catalog.location).chmod(catalog_mode)
    lock = Path(f"{catalog.location}.lock")
    lock.chmod(0o666)  # as of an older release

    with Lake.connect(catalog.sqlalchemy_url) as lake:
        lake.append_arrow("t", ROWS)

    assert stat.S_IMODE(lock.stat().st_mode) == lock_mode


def test_a_user_who_may_only_read_a_sqlite_lake_cannot_lock_writers_out():
    """Also where tests run as root, who may do everything: a child gives that up."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        catalog = CatalogDatabase("sqlite", f"{folder}/lake.sqlite", data_directory(Path(folder)))
        created(catalog)
        Path(catalog.location).chmod(0o644)
        give_up = f"import os; os.geteuid() or (os.setgid({NOBODY}), os.setuid({NOBODY})); "
        reads, locks = (f"open({catalog.location + end!r}).close()" for end in ("", ".lock"))
        may_read, may_lock = (
            subprocess.run([sys.executable, "-c", give_up + one], capture_output=True, check=False).returncode
            == 0
            for one in (reads, locks)
        )

    assert (may_read, may_lock) == (True, os.geteuid() != 0)  # who runs tests as another user owns the file
