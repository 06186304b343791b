"""A private server of MySQL itself, as ``scripts/mysql`` unpacks it; used like MariaDB's."""

import getpass
import tempfile
from pathlib import Path

from tests.reference.processes import SupervisedServer, free_port

FOLDER = Path(__file__).parents[2] / "build" / "mysql" / "root" / "usr"
HOW_TO_GET_IT = "MySQL is not unpacked: run scripts/mysql"

# Its C library is newer than the system's, so its own loader starts it.
_SUPERVISOR = """
loader=$1 usr=$2 root=$3 user=$4 port=$5
mysqld() {
  exec "$loader" --library-path "$(dirname "$loader")" "$usr/sbin/mysqld" --no-defaults --user="$user" \
    --basedir="$usr" --lc-messages-dir="$usr/share/mysql" --datadir="$root/data" "$@" >>"$root/log" 2>&1
}
(mysqld --initialize-insecure) || exit 1
by_tcp="root@'127.0.0.1'"
echo "CREATE USER $by_tcp; GRANT ALL ON *.* TO $by_tcp WITH GRANT OPTION;" >"$root/users.sql"
mysqld --init-file="$root/users.sql" --secure-file-priv= --mysqlx=OFF \
  --socket="$root/socket" --pid-file="$root/pid" --tmpdir="$root" \
  --bind-address=127.0.0.1 --port="$port" --skip-name-resolve --skip-log-bin --max-connections=200 \
  --innodb-flush-log-at-trx-commit=0 --innodb-doublewrite=OFF --innodb-buffer-pool-size=64M &
while ! grep -q "ready for connections" "$root/log"; do kill -0 $! 2>/dev/null || exit 1; sleep 0.1; done
echo ready
read -r _
kill -9 $!
wait $! 2>/dev/null
rm -rf "$root"
"""


def find_loader() -> Path | None:
    """Return the program that starts the server; None: it is not unpacked."""
    if not (FOLDER / "sbin" / "mysqld").exists():
        return None
    return next(FOLDER.glob("lib/*-linux-gnu/ld-linux*.so*"), None)


class MySqlServer(SupervisedServer):
    """One server; its user `root` has no password and comes by the socket or by TCP."""

    def __init__(self) -> None:
        loader = find_loader()
        if loader is None:
            raise RuntimeError(HOW_TO_GET_IT)
        root = Path(tempfile.mkdtemp(prefix="ducklake_mysql_"))
        self.port = free_port()
        arguments = [str(loader), str(FOLDER), str(root), getpass.getuser(), str(self.port)]
        super().__init__("MySQL", _SUPERVISOR, arguments, root)
