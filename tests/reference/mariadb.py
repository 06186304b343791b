"""A private MariaDB server from the programs of Debian's package; without systemd, as any user."""

import getpass
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pymysql

from tests.reference.catalogs import CatalogDatabase
from tests.reference.processes import SupervisedServer, free_port

PACKAGE = "mariadb-server-core mariadb-client-core"

# In a shared temporary directory a server that starts deletes the files of those that run.
_SUPERVISOR = """
install=$1 server=$2 root=$3 user=$4 port=$5
"$install" --no-defaults --user="$user" --datadir="$root/data" --auth-root-authentication-method=normal \
  --skip-test-db --skip-name-resolve >"$root/log" 2>&1 || exit 1
mkdir -m 777 "$root/tmp"
"$server" --no-defaults --user="$user" --datadir="$root/data" --socket="$root/socket" --pid-file="$root/pid" \
  --tmpdir="$root/tmp" \
  --bind-address=127.0.0.1 --port="$port" --skip-name-resolve --skip-log-bin --max-connections=200 \
  --innodb-flush-log-at-trx-commit=0 --innodb-doublewrite=0 --innodb-buffer-pool-size=64M \
  --innodb-file-per-table=0 \
  >>"$root/log" 2>&1 &
while ! [ -S "$root/socket" ]; do kill -0 $! 2>/dev/null || exit 1; sleep 0.05; done
echo ready
read -r _
kill -9 $!
wait $! 2>/dev/null
rm -rf "$root"
"""


def find_programs() -> tuple[str, str] | None:
    """Return where the programs that make a data directory and serve it are; None: not installed."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"])
    install, server = (shutil.which(name, path=path) for name in ("mariadb-install-db", "mariadbd"))
    return (install, server) if install and server else None


class MariaDbServer(SupervisedServer):
    """One server; its user `root` has no password and comes by the socket or by TCP."""

    def __init__(self) -> None:
        programs = find_programs()
        if programs is None:
            raise RuntimeError(f"MariaDB is not installed: apt-get install {PACKAGE}")
        root = Path(tempfile.mkdtemp(prefix="ducklake_mariadb_"))
        self.port = free_port()
        arguments = [*programs, str(root), getpass.getuser(), str(self.port)]
        super().__init__("MariaDB", _SUPERVISOR, arguments, root)


@contextmanager
def fresh_database(port: int) -> Iterator[str]:
    """Create a database whose own defaults do not suit a catalog; yield DuckDB's text for it; drop it."""
    name = f"lake_{uuid.uuid4().hex}"
    with admin(port) as connection:
        connection.execute(f"CREATE DATABASE {name} CHARACTER SET latin1")
    try:
        yield f"host=127.0.0.1 port={port} user=root database={name}"
    finally:
        with admin(port) as connection:
            connection.execute(f"DROP DATABASE {name}")


@contextmanager
def admin(port: int, database: str | None = None) -> Iterator[pymysql.cursors.Cursor]:
    """Yield a cursor whose statements take effect at once."""
    connection = pymysql.connect(
        host="127.0.0.1", port=port, user="root", database=database, charset="utf8mb4", autocommit=True
    )
    with closing(connection), connection.cursor() as cursor:
        yield cursor


def is_mysql(catalog: CatalogDatabase) -> bool:
    """Whether the server is MySQL itself, on which tests of MariaDB run too."""
    with admin(int(catalog.server["port"])) as cursor:
        cursor.execute("SELECT version()")
        return "MariaDB" not in cursor.fetchone()[0]
