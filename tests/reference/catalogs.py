"""Where one test's lake lives: the catalog database and the data directory."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlencode

CatalogKind = Literal["sqlite", "postgres", "duckdb"]
CATALOG_KINDS: tuple[CatalogKind, ...] = ("sqlite", "postgres")  # what `--catalog all` means


@dataclass(frozen=True, slots=True)
class CatalogDatabase:
    kind: CatalogKind
    location: str  # file path, or libpq connection string: "dbname=… host=…"
    data_path: str  # absolute, ends in "/"

    @property
    def attach_string(self) -> str:
        """What DuckDB's ATTACH takes."""
        prefix = "ducklake:" if self.kind == "duckdb" else f"ducklake:{self.kind}:"
        return prefix + self.location

    @property
    def sqlalchemy_url(self) -> str:
        if self.kind == "postgres":
            return _postgres_url(dict(part.split("=", 1) for part in self.location.split()))
        return f"{self.kind}:///{self.location}"


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
