"""Users of a catalog's database who have nothing but what the printed statements grant them."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import psycopg

from airflow_provider_ducklake.lake.catalog.lake import Lake
from tests.reference import mariadb
from tests.reference.catalogs import CatalogDatabase

ROLES = ("maintainer", "writer", "reader")  # the maintainer's statements come first


@dataclass(frozen=True)
class Users:
    """The users' names by their roles, and the lake as each of them opens it."""

    names: dict[str, str]
    catalog: CatalogDatabase

    def of(self, role: str) -> CatalogDatabase:
        return as_user(self.catalog, self.names[role])

    def grant(self) -> None:
        """Run what the library prints, as the administrator."""
        with Lake.connect(self.catalog.sqlalchemy_url) as lake:
            statements = [one for role in ROLES for one in lake.maintenance.grants(role, **self.names)]
        run(self.catalog, *statements)


def as_user(catalog: CatalogDatabase, name: str) -> CatalogDatabase:
    known = "user=postgres" if catalog.kind == "postgres" else "user=root"
    return replace(catalog, location=catalog.location.replace(known, f"user={name}"))


def run(catalog: CatalogDatabase, *statements: str) -> None:
    """Run statements as they are printed, as the server's administrator."""
    if catalog.kind == "postgres":
        with psycopg.connect(catalog.location, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)
        return
    with mariadb.admin(int(catalog.server["port"]), catalog.database) as cursor:
        for statement in statements:
            cursor.execute(statement)


@contextmanager
def users(catalog: CatalogDatabase) -> Iterator[Users]:
    """Make the three, who may log in and nothing else."""
    tag = uuid.uuid4().hex[:12]
    found = Users({role: f"{role}_{tag}" for role in ROLES}, catalog)
    names = list(found.names.values())
    is_postgres = catalog.kind == "postgres"
    run(catalog, *(f"CREATE ROLE {one} LOGIN" if is_postgres else f"CREATE USER {one}" for one in names))
    yield found
    if is_postgres:
        drop_roles(catalog, *names)
    else:
        run(catalog, f"DROP USER {', '.join(names)}")


def drop_roles(catalog: CatalogDatabase, *names: str) -> None:
    """Drop roles of PostgreSQL with their rights; their tables become the administrator's."""
    for name in names:  # several at once trip over their default privileges
        run(catalog, f"REASSIGN OWNED BY {name} TO postgres", f"DROP OWNED BY {name}")
    run(catalog, f"DROP ROLE {', '.join(names)}")
