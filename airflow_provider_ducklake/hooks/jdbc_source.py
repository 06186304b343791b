"""A jdbc source that names an Airflow connection: its URL goes into the request, its password never does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook

from ..lake.errors import InvalidInputError
from ..lake.format.names.paths import check_login, check_secrets

if TYPE_CHECKING:
    from airflow.sdk import Connection

PASSWORD_VARIABLE = "DUCKLAKE_JDBC_PASSWORD"  # noqa: S105 - a variable's name; a number follows


@dataclass(frozen=True, slots=True)
class _JdbcDatabase:
    """How Spark reaches a database. Without the class it does not find a driver from ``packages``."""

    url: str
    port: int
    driver: str


_DATABASES = {
    "postgres": _JdbcDatabase("jdbc:postgresql://{host}:{port}/{schema}", 5432, "org.postgresql.Driver"),
    "mysql": _JdbcDatabase("jdbc:mysql://{host}:{port}/{schema}", 3306, "com.mysql.cj.jdbc.Driver"),
    "mssql": _JdbcDatabase(
        "jdbc:sqlserver://{host}:{port};databaseName={schema}",
        1433,
        "com.microsoft.sqlserver.jdbc.SQLServerDriver",
    ),
    "oracle": _JdbcDatabase("jdbc:oracle:thin:@//{host}:{port}/{schema}", 1521, "oracle.jdbc.OracleDriver"),
    "redshift": _JdbcDatabase("jdbc:redshift://{host}:{port}/{schema}", 5439, "com.amazon.redshift.Driver"),
}


def refuse_secrets(
    source: str | Mapping[str, Any] | None, sources: Mapping[str, str | Mapping[str, Any]] | None = None
) -> None:
    """Refuse secrets in sources while a DAG is read: what a task renders, Airflow stores and shows."""
    for name, one in {"source": source, **(sources if isinstance(sources, Mapping) else {})}.items():
        options, path = (one.get("options"), one.get("path")) if isinstance(one, Mapping) else (None, one)
        check_login(path, name)
        if isinstance(options, Mapping):
            check_secrets(options, name)


class JdbcPasswords:
    """Collects the passwords of one job's jdbc sources, as variables for the environment of its driver."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self._values)

    def resolve(self, source: str | Mapping[str, Any]) -> str | Mapping[str, Any]:
        """Return the source with the address of its ``conn_id`` filled in; others come back as they are."""
        if isinstance(source, str):
            return source
        if not isinstance(source, Mapping):
            raise InvalidInputError(
                f"A source is a path or a mapping, not {source!r}. For several files, give their folder or "
                "a pattern such as /in/*.csv."
            )
        if "conn_id" not in source:
            return source
        if str(source.get("format")).lower() != "jdbc":
            raise InvalidInputError(
                f"conn_id={source['conn_id']!r}: only a source of format jdbc takes a connection."
            )
        connection = _connection(str(source["conn_id"]))
        options = dict(source.get("options") or {})
        if "url" not in options:
            options = jdbc_options(connection) | options
        if connection.login:
            options.setdefault("user", connection.login)
        resolved = {key: value for key, value in source.items() if key != "conn_id"} | {"options": options}
        if connection.password:
            variable = f"{PASSWORD_VARIABLE}_{len(self._values)}"
            self._values[variable] = connection.password
            resolved["password_env"] = variable
        return resolved

    @property
    def variables(self) -> dict[str, str]:
        """The variables that the job's request names, with their values."""
        return dict(self._values)


def _connection(conn_id: str) -> Connection:
    try:
        return BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        raise InvalidInputError(
            f"The connection {conn_id!r} of a jdbc source does not exist. Create it, or correct its conn_id."
        ) from None


def jdbc_options(connection: Connection) -> dict[str, str]:
    """Return ``url`` and, if it is set, ``driver`` of an Airflow connection, without user and password."""
    if connection.conn_type == "jdbc" and (connection.host or "").startswith("jdbc:"):
        driver = connection.extra_dejson.get("driver_class")  # as Airflow's own jdbc provider names it
        return {"url": str(connection.host)} | ({"driver": str(driver)} if driver else {})
    database = _DATABASES.get(connection.conn_type or "")
    if database is None:
        raise InvalidInputError(
            f"Connection {connection.conn_id!r} of type {connection.conn_type!r} has no known JDBC URL. Use "
            f"a connection of type jdbc, {', '.join(_DATABASES)}, or put url into the source's options."
        )
    port = connection.port or database.port
    url = database.url.format(host=connection.host, port=port, schema=connection.schema or "")
    return {"url": url, "driver": database.driver}
