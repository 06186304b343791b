"""Where one test's lake lives: the catalog database and the data directory."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlencode

CatalogKind = Literal["sqlite", "postgres", "mariadb", "duckdb"]
CATALOG_KINDS: tuple[CatalogKind, ...] = ("sqlite", "postgres", "mariadb", "duckdb")
# Where the reference writes whatever it can write, and others may look on: what most tests run over.
USUAL_KINDS: tuple[CatalogKind, ...] = ("sqlite", "postgres")


@dataclass(frozen=True, slots=True)
class CatalogDatabase:
    kind: CatalogKind
    location: str  # file path, or what DuckDB connects to a server by: "dbname=… host=…"
    data_path: str  # absolute, ends in "/"
    spec_version: str = "1.0"  # of the lake that a test makes here; at 1.1 the reference gets it by `lent`
    is_encrypted: bool = False  # the lake that the reference makes here

    @property
    def is_for_the_reference(self) -> bool:
        """Whether it can be shown the lake: of 1.1 a copy is for it, of SQLite and PostgreSQL."""
        return self.spec_version == "1.0" or self.kind in USUAL_KINDS

    @property
    def attach_string(self) -> str:
        """What DuckDB's ATTACH takes."""
        prefix = "ducklake:" if self.kind == "duckdb" else f"ducklake:{_SCANNER.get(self.kind, self.kind)}:"
        return prefix + self.location

    @property
    def sqlalchemy_url(self) -> str:
        match self.kind:
            case "postgres":
                return _postgres_url(self.server)
            case "mariadb":
                return f"mariadb://{self.server['user']}@{self.server['host']}:{self.server['port']}/{self.database}"
            case _:
                return f"{self.kind}:///{self.location}"

    @property
    def server(self) -> dict[str, str]:
        """How a server is reached, by name: host, port, user."""
        return dict(part.split("=", 1) for part in self.location.split())

    @property
    def database(self) -> str:
        """The database's name on its server."""
        return self.server["database" if self.kind == "mariadb" else "dbname"]


_SCANNER = {"mariadb": "mysql"}


def _postgres_url(libpq: dict[str, str]) -> str:
    query = urlencode({key: libpq[key] for key in ("host", "port")})
    return f"postgresql+psycopg://{libpq['user']}@/{libpq['dbname']}?{query}"


def file_catalog(kind: CatalogKind, folder: Path) -> CatalogDatabase:
    """Name a SQLite or DuckDB-file catalog below `folder`, with an empty data directory beside it."""
    return CatalogDatabase(kind, str(folder / f"catalog.{kind}"), data_directory(folder))


def data_directory(folder: Path) -> str:
    path = folder / "data"
    path.mkdir(parents=True)
    return f"{path}/"
