"""Users of a catalog's database who have nothing but what the statements of docs/roles.md grant them."""

import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import psycopg

from tests.reference import mariadb
from tests.reference.catalogs import CatalogDatabase

ROLES = ("maintainer", "writer", "reader")
PAGE = (Path(__file__).parents[2] / "docs" / "roles.md").read_text()
OF_1_1 = "ducklake_view_column_tag"


def blocks(kind: str) -> list[str]:
    """Return the blocks of SQL that the page has for a database."""
    postgres, mysql = PAGE.split("## MySQL, MariaDB")
    return re.findall(
        r"^```sql\n(.*?)^```", postgres if kind == "postgres" else mysql, re.DOTALL | re.MULTILINE
    )


def quoted(kind: str, name: str) -> str:
    mark = '"' if kind == "postgres" else "`"
    return mark + name.replace(mark, mark * 2) + mark


def all_of(database: str) -> str:
    """Return all tables of a database of MySQL as GRANT has them: by a pattern."""
    return quoted("mariadb", database.replace("_", r"\_").replace("%", r"\%")) + ".*"


def statements(catalog: CatalogDatabase, names: Mapping[str, str], schema: str = "public") -> list[str]:
    """Return what the page grants, with the names of a lake and of its roles in place of the page's."""
    kind, database = catalog.kind, catalog.database
    own = {"lake": quoted(kind, database), "public": quoted(kind, schema)}
    own |= {f"ducklake_{role}": quoted(kind, name) for role, name in names.items()}
    if kind == "postgres":
        return [_with_names(blocks(kind)[1], own)]
    own["lake.*"] = all_of(database)
    text, of_1_1 = blocks(kind)
    text += of_1_1 if _has_table(catalog, OF_1_1) else ""
    return [_with_names(one, own) for one in text.split(";\n") if one]


def _with_names(text: str, names: Mapping[str, str]) -> str:
    longest_first = sorted(map(re.escape, names), reverse=True)
    return re.sub(rf"\b({'|'.join(longest_first)})(?!\w)", lambda found: names[found[0]], text)


def _has_table(catalog: CatalogDatabase, name: str) -> bool:
    with mariadb.admin(int(catalog.server["port"]), catalog.database) as cursor:
        return bool(cursor.execute(f"SHOW TABLES LIKE '{name}'"))


@dataclass(frozen=True)
class Users:
    """The users' names by their roles, and the lake as each of them opens it."""

    names: dict[str, str]
    catalog: CatalogDatabase

    def of(self, role: str) -> CatalogDatabase:
        return as_user(self.catalog, self.names[role])

    def grant(self) -> None:
        """Run what the page says, as the administrator."""
        run(self.catalog, *statements(self.catalog, self.names))


def as_user(catalog: CatalogDatabase, name: str) -> CatalogDatabase:
    known = "user=postgres" if catalog.kind == "postgres" else "user=root"
    return replace(catalog, location=catalog.location.replace(known, f"user={name}"))


def run(catalog: CatalogDatabase, *statements: str) -> None:
    """Run statements as they are, as the server's administrator."""
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
