"""The statements that give the user of a database its role in a lake.

*Source:* PostgreSQL and MariaDB (docs/sources.md, rights in the catalog's database).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.spec.versions import Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from airflow_provider_ducklake.lake.spec.versions import RoleNames


_ORDER = ("SELECT", "INSERT", "UPDATE", "DELETE")


@dataclass(frozen=True, slots=True)
class Wanted:
    """A role to grant, the names of its users, and a writer's rights by table name."""

    role: Role
    names: RoleNames
    rights: Mapping[str, tuple[str, ...]]

    @property
    def rights_of_role(self) -> Mapping[str, tuple[str, ...]]:
        """The rights of a reader or a writer, by the tables' names."""
        only_read = self.role is Role.READER
        return {name: ("SELECT",) if only_read else rights for name, rights in self.rights.items()}


def postgres_grants(wanted: Wanted, database: str, schema: str, owners: Mapping[str, str]) -> Iterator[str]:
    """Yield the statements for PostgreSQL; ``owners`` are the owners of the tables that are there.

    Tables of inlined rows are made later, by writers and maintainers: default privileges open them to the
    other roles. Only owners may alter and drop tables, so the maintainer owns them, and is a member of the
    writer, which owns those that it makes.
    """
    role, names = wanted.role, wanted.names
    to, within = _double_quoted(names.of(role)), _double_quoted(schema)
    creates = "" if role is Role.READER else ", CREATE"
    yield f"GRANT CONNECT ON DATABASE {_double_quoted(database)} TO {to}"
    yield f"GRANT USAGE{creates} ON SCHEMA {within} TO {to}"
    if role is Role.MAINTAINER:
        yield f"GRANT {_double_quoted(names.writer)} TO {to}"
        for name in wanted.rights:
            if owners.get(name) not in (names.writer, names.maintainer):
                yield f"ALTER TABLE {within}.{_double_quoted(name)} OWNER TO {to}"
        return
    for right in _ORDER:
        tables = [name for name, rights in wanted.rights_of_role.items() if right in rights]
        if tables:
            listed = ", ".join(f"{within}.{_double_quoted(name)}" for name in tables)
            yield f"GRANT {right} ON TABLE {listed} TO {to}"
    later = "SELECT" if role is Role.READER else ", ".join(_ORDER)
    makers = (names.writer, names.maintainer) if role is Role.READER else (names.maintainer,)
    yield (
        f"ALTER DEFAULT PRIVILEGES FOR ROLE {', '.join(map(_double_quoted, makers))} IN SCHEMA {within} "
        f"GRANT {later} ON TABLES TO {to}"
    )


def mysql_grants(wanted: Wanted, database: str, *, has_patterns: bool) -> Iterator[str]:
    """Yield the statements for MySQL and MariaDB.

    No tables are made there while rows are written, so that each table is named. A maintainer migrates,
    which makes and renames tables: it gets its rights on the database. Its name is a pattern there, and
    nowhere else, unless the server has none (``has_patterns``).
    """
    to = _account(wanted.names.of(wanted.role))
    if wanted.role is Role.MAINTAINER:
        exact = database.replace("_", r"\_").replace("%", r"\%") if has_patterns else database
        yield f"GRANT {', '.join(_ORDER)}, CREATE, ALTER, DROP, INDEX ON {_backquoted(exact)}.* TO {to}"
        return
    for name, rights in wanted.rights_of_role.items():
        yield f"GRANT {_in_order(rights)} ON {_backquoted(database)}.{_backquoted(name)} TO {to}"


def _in_order(rights: Iterable[str]) -> str:
    return ", ".join(sorted(rights, key=_ORDER.index))


def _account(name: str) -> str:
    """Return an account: a user, from any host, or a role; after the last ``@`` comes a host."""
    user, at, host = name.rpartition("@")
    return f"{_backquoted(user)}@{_backquoted(host)}" if at and user else _backquoted(name)


def _double_quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _backquoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


# Which tables of a catalog each role may change.
#
# A reader may read every table. A maintainer may do everything: it owns them. What a writer may change is
# here. *Source:* the statements of our verbs and of DuckDB 1.5.5 as users with these rights
# (docs/sources.md, rights in the catalog's database).


_UPDATE, _DELETE = ("UPDATE",), ("DELETE",)
# A writer inserts into every table of the format. It changes these besides: it ends lifetimes, adds to
# statistics, sets options, and replaces delete files.
_CHANGED: Mapping[str, tuple[str, ...]] = {
    "metadata": (*_UPDATE, *_DELETE),
    "schema": _UPDATE,
    "table": _UPDATE,
    "view": _UPDATE,
    "macro": _UPDATE,
    "tag": _UPDATE,
    "column_tag": _UPDATE,
    "view_column_tag": _UPDATE,
    "column": _UPDATE,
    "data_file": _UPDATE,
    "delete_file": (*_UPDATE, *_DELETE),
    "file_column_stats": _UPDATE,
    "table_stats": _UPDATE,
    "table_column_stats": (*_UPDATE, *_DELETE),
    "partition_info": _UPDATE,
    "sort_info": _UPDATE,
    "inlined_data_tables": _DELETE,
}
# Tables that are made for a table of the lake, some of them while it is written.
_INLINED = {
    re.compile(r"ducklake_inlined_data_\d+_\d+"): ("SELECT", "INSERT", *_UPDATE, *_DELETE),
    re.compile(r"ducklake_inlined_delete_\d+"): ("SELECT", "INSERT", *_DELETE),
}


def rights_on(kind: str) -> tuple[str, ...]:
    """Return a writer's rights on a table of the format, which has its name after ``ducklake_``."""
    return ("SELECT", "INSERT", *_CHANGED.get(kind, ()))


def rights_on_inlined(name: str) -> tuple[str, ...]:
    """Return a writer's rights on a table of inlined rows or deletes; none if it is neither."""
    return next((rights for pattern, rights in _INLINED.items() if pattern.fullmatch(name)), ())
