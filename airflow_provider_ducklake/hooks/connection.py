"""Read and check a DuckLake connection: Airflow itself stores any values.

DuckDB's ATTACH statement of its lake holds no password: DuckDB's clients of PostgreSQL and MySQL take it from
the environment (``PGPASSWORD``, ``MYSQL_PWD``) or from a secret of DuckDB's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, quote_plus

from airflow.sdk.log import mask_secret

from ..lake.errors import InvalidInputError, InvalidOptionError
from ..lake.format.limits import KEY_BYTES, Limits
from ..lake.format.names.identifiers import written
from ..lake.format.names.paths import directory_path
from ..lake.format.versions import DEFAULT, WRITABLE, SpecVersion, opened_by
from . import connection_form as fields

if TYPE_CHECKING:
    from airflow.sdk import Connection
    from sqlalchemy.engine import URL


_HIGHEST_PORT = 65535
_SECRET_NAME = re.compile(
    "secret|token|pass|key|credential|signature|sas|auth|dsn|connection_string", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """The catalog's URL, and what opening the lake behind it needs; its repr holds no secret."""

    conn_id: str
    url: URL
    metadata_schema: str | None = None
    data_path: str | None = None  # absolute, ends in "/"
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    commit_namespace: str | None = None
    named: str = "This connection"  # how a message begins
    foreign_files: bool = False
    ducklake_version: SpecVersion | None = None
    max_version: SpecVersion | None = None
    encrypted: bool = False
    key_bytes: int | None = None
    document_key_file: str | None = None
    create_lake: bool = False
    adds_packages: bool = False

    def invalid(self, of: fields.ExtraField | fields.StandardField, problem: str) -> InvalidOptionError:
        """Return the error for a field that does not fit what the catalog holds."""
        return _invalid(self.named, of, problem)


def read_settings(
    connection: Connection, named: str | None = None, *, with_storage: bool = True
) -> ConnectionSettings:
    """Check every field of a connection, and have its secrets masked in the task's log from here on.

    ``named`` is how messages call it; None: by its id. ``with_storage``: files are to be opened as well,
    which may take another connection.
    """
    _mask(connection.password)
    named = named or f"Connection {connection.conn_id!r}"
    _check_type(connection, named)
    extra = _extra(connection, named)
    storage_options = _storage_options(named, extra) if with_storage else {}
    catalog_type = _catalog_type(named, extra.get(fields.CATALOG_TYPE.name))
    ducklake_version, max_version = _versions(named, extra)
    return ConnectionSettings(
        connection.conn_id,
        _url(connection, named, catalog_type).update_query_dict(_limits(named, extra)),
        _metadata_schema(named, catalog_type, extra.get(fields.METADATA_SCHEMA.name)),
        _data_path(named, extra.get(fields.DATA_PATH.name)),
        storage_options,
        _commit_namespace(named, extra.get(fields.COMMIT_NAMESPACE.name)),
        named,
        _flag(named, fields.FOREIGN_FILES, extra.get(fields.FOREIGN_FILES.name)),
        ducklake_version,
        max_version,
        _flag(named, fields.ENCRYPTED, extra.get(fields.ENCRYPTED.name)),
        _key_bytes(named, extra.get(fields.KEY_BYTES.name)),
        _document_key_file(named, extra.get(fields.DOCUMENT_KEY_FILE.name)),
        _flag(named, fields.CREATE_LAKE, extra.get(fields.CREATE_LAKE.name)),
        _adds_packages(named, extra.get(fields.SPARK_PACKAGES.name)),
    )


def _invalid(named: str, of: fields.ExtraField | fields.StandardField, problem: str) -> InvalidOptionError:
    name = of.label if of.label.lower() == of.name else f"{of.label} ({of.name})"
    return InvalidOptionError(f"{named}, field {name}: {problem}")


def _extra(connection: Connection, named: str) -> dict[str, Any]:
    """Return the filled fields of the extra; no value of it is ever shown, as any may be a secret."""
    try:
        extra = json.loads(connection.extra or "{}")
    except (ValueError, RecursionError):
        extra = None
    if not isinstance(extra, dict):
        raise InvalidOptionError(
            f'{named}: its extra is not a valid JSON object. Write it as {{"catalog_type": "postgres"}}.'
        )
    known = [of.name for of in fields.EXTRA_FIELDS]
    unknown = sorted(set(extra) - set(known))
    if unknown:
        raise InvalidOptionError(
            f"{named}: its extra has the unknown keys {', '.join(map(repr, unknown))}. A DuckLake "
            f"connection has {', '.join(known)}; put options of the file system into storage_options."
        )
    return {name: value for name, value in extra.items() if value not in (None, "")}


def _check_type(connection: Connection, named: str) -> None:
    """Refuse a connection of another type, unless it sets catalog_type."""
    if connection.conn_type not in (None, "", fields.CONNECTION_TYPE) and fields.CATALOG_TYPE.name not in (
        connection.extra or ""
    ):
        raise InvalidOptionError(
            f"{named} is of type {connection.conn_type!r}; a lake needs a connection of type "
            f"{fields.CONNECTION_TYPE!r}. Name another one as ducklake_conn_id, or create it with that type."
        )


def _catalog_type(named: str, value: object) -> str:
    if value is None:
        raise _invalid(
            named, fields.CATALOG_TYPE, f"is empty. Choose one of {', '.join(fields.CATALOG_TYPES)}."
        )
    if not isinstance(value, str) or value not in fields.CATALOG_TYPES:
        raise _invalid(
            named,
            fields.CATALOG_TYPE,
            f"{value!r} is no catalog type of this release. Choose {', '.join(fields.CATALOG_TYPES)}.",
        )
    return str(value)


def _url(connection: Connection, named: str, catalog_type: str) -> URL:
    from sqlalchemy.engine import URL

    port = _port(named, connection.port)
    if fields.CATALOG_TYPES[catalog_type].server is None:
        file = _file(named, catalog_type, connection.schema)
        return URL.create(fields.CATALOG_TYPES[catalog_type].driver, database=file)
    for of, value in ((fields.HOST, connection.host), (fields.DATABASE, connection.schema)):
        if not value:
            raise _invalid(
                named, of, f"is empty. A {fields.CATALOG_TYPES[catalog_type].name} catalog needs it."
            )
    url = URL.create(
        fields.CATALOG_TYPES[catalog_type].driver,
        username=connection.login or None,
        password=connection.password or None,
        host=connection.host,
        port=port,
        database=connection.schema,
    )
    if url.password:
        _mask(url.render_as_string(hide_password=False))
    return url


def _port(named: str, value: object) -> int | None:
    if value in (None, "", 0, "0"):  # Airflow's form sends 0 for an empty field
        return None
    text = str(value)
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= _HIGHEST_PORT):
        raise _invalid(
            named,
            fields.PORT,
            f"{value!r} is not a valid port. Write a whole number from 1 to {_HIGHEST_PORT}.",
        )
    return int(text)


def _file(named: str, catalog_type: str, path: str | None) -> str:
    example = f"/data/lake.{catalog_type}"
    if not path:
        raise _invalid(
            named,
            fields.DATABASE,
            f"is empty. Give the {fields.CATALOG_TYPES[catalog_type].name} file's path, such as {example}.",
        )
    if not PurePath(path).is_absolute():
        raise _invalid(
            named,
            fields.DATABASE,
            f"{path!r} is a relative path, and every worker has its own working directory. Write an "
            f"absolute path, such as {example}.",
        )
    return path


def _metadata_schema(named: str, catalog_type: str, value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise _invalid(named, fields.METADATA_SCHEMA, f"{value!r} is not a valid name. Write it as a string.")
    why_not = fields.CATALOG_TYPES[catalog_type].why_no_schema
    if why_not is not None:
        raise _invalid(named, fields.METADATA_SCHEMA, f"{value!r} is set, but {why_not}")
    return value


def _commit_namespace(named: str, value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise _invalid(
            named, fields.COMMIT_NAMESPACE, f"{value!r} is not a valid name. Write it as a string."
        )
    return value


def _flag(named: str, of: fields.ExtraField, value: object) -> bool:
    """Read a flag, or its text: forms of Airflow 3.1 and URIs have only texts."""
    word = str(value or False).strip().lower()
    if word not in ("true", "false"):
        raise _invalid(named, of, f"{value!r} is neither true nor false.")
    return word == "true"


def _adds_packages(named: str, value: object) -> bool:
    if value not in (None, "", "auto"):
        raise _invalid(
            named, fields.SPARK_PACKAGES, f"{value!r} is not 'auto'. Write that, or clear the field."
        )
    return value == "auto"


def _key_bytes(named: str, value: object) -> int | None:
    """Read a number, or its text."""
    if value in (None, ""):
        return None
    if isinstance(value, bool) or str(value).strip() not in map(str, KEY_BYTES):
        raise _invalid(named, fields.KEY_BYTES, f"{value!r} is not a length of AES keys: 16, 24 or 32.")
    return int(str(value))


def _document_key_file(named: str, value: object) -> str | None:
    if value in (None, ""):
        return None
    if not isinstance(value, str) or not PurePath(value).is_absolute():
        raise _invalid(named, fields.DOCUMENT_KEY_FILE, f"{value!r} is not the absolute path of a file.")
    return value


def _limits(named: str, extra: Mapping[str, Any]) -> dict[str, str]:
    """Return the limits that are set, as the catalog's URL has them."""
    given = {
        of.name: str(extra[of.name])
        for of in (fields.LOCK_TIMEOUT, fields.STATEMENT_TIMEOUT)
        if of.name in extra
    }
    try:
        Limits.of(given)
    except InvalidInputError as error:
        field = (
            fields.LOCK_TIMEOUT
            if str(error).startswith(fields.LOCK_TIMEOUT.name)
            else fields.STATEMENT_TIMEOUT
        )
        raise _invalid(named, field, str(error)) from None
    return given


def _versions(named: str, extra: Mapping[str, Any]) -> tuple[SpecVersion | None, SpecVersion | None]:
    pinned, newest = (
        _version(named, of, extra.get(of.name)) if of.name in extra else None
        for of in (fields.DUCKLAKE_VERSION, fields.MAX_VERSION)
    )
    if pinned is not None and newest is not None and pinned > newest:
        raise _invalid(
            named,
            fields.DUCKLAKE_VERSION,
            f"{pinned.value!r} is newer than {newest.value!r}, the {fields.MAX_VERSION.name}. Correct one.",
        )
    return pinned, newest


def _version(named: str, of: fields.ExtraField, value: object) -> SpecVersion:
    """Read a version; JSON may have it as a number."""
    version = next((one for one in WRITABLE if one.value == str(value)), None)
    if version is None:
        known = " or ".join(repr(one.value) for one in sorted(WRITABLE))
        raise _invalid(named, of, f"{value!r} is not a DuckLake version to work on. Write {known}.")
    return version


def _data_path(named: str, value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise _invalid(named, fields.DATA_PATH, f"{value!r} is not a valid path. Write it as a string.")
    if "://" not in value and not PurePath(value).is_absolute():
        raise _invalid(
            named,
            fields.DATA_PATH,
            f"{value!r} is a relative path, and every worker has its own working directory. Write an "
            "absolute path, such as /data/files/, or a URI, such as s3://bucket/lake/.",
        )
    return directory_path(value)


def _storage_options(named: str, extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return the lake's own options over those of its storage connection; every secret is masked."""
    options = _own_storage_options(named, extra.get(fields.STORAGE_OPTIONS.name))
    if (conn_id := extra.get(fields.STORAGE_CONN_ID.name)) is not None:
        options = _with_storage_connection(named, str(conn_id), options)
    for secret in _secrets(options):
        _mask(secret)
    return options


def _with_storage_connection(named: str, conn_id: str, own: Mapping[str, Any]) -> dict[str, Any]:
    from .storage import merged, options_of

    try:
        return merged(options_of(conn_id), own)
    except InvalidOptionError as error:
        raise _invalid(named, fields.STORAGE_CONN_ID, str(error)) from None


def _own_storage_options(named: str, value: object) -> dict[str, Any]:
    """Read a JSON object, or its text: forms of Airflow 3.1 and URIs cannot hold an object in a field."""
    options = value or {}
    if isinstance(options, str):
        _mask(options)
        try:
            options = json.loads(options)
        except (ValueError, RecursionError):
            options = None
    if not isinstance(options, dict):
        raise _invalid(
            named,
            fields.STORAGE_OPTIONS,
            'is not a valid JSON object. Write it as {"key": "…", "secret": "…"}.',
        )
    return options


def _secrets(value: object, *, is_secret: bool = False) -> Iterator[str]:
    """Yield every text and number that stands, at any depth, below a name that speaks of a secret."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _secrets(inner, is_secret=is_secret or _SECRET_NAME.search(name) is not None)
    elif isinstance(value, list):
        for inner in value:
            yield from _secrets(inner, is_secret=is_secret)
    elif is_secret and isinstance(value, (str, int, float)) and not isinstance(value, bool):
        yield str(value)


def _mask(secret: str | None) -> None:
    """Hide a secret in logs, also as it looks inside a URL or in JSON."""
    if secret:
        in_json = json.dumps(secret)[1:-1]
        for spelling in {secret, quote(secret, safe=" +"), quote_plus(secret), in_json}:
            mask_secret(spelling)


def attach_statement(settings: ConnectionSettings, alias: str) -> str:
    """Return ``ATTACH 'ducklake:…' AS alias``."""
    schema = settings.metadata_schema
    options = f" (METADATA_SCHEMA {_literal(schema)})" if schema is not None else ""
    return f"ATTACH {_literal('ducklake:' + _catalog(settings.url))} AS {written(alias)}{options}"


def _catalog(url: URL) -> str:
    kind = next(one for one in fields.CATALOG_TYPES.values() if one.driver == url.drivername)
    return kind.attach + (url.database or "" if kind.server is None else _parameters(url, *kind.server))


def _parameters(url: URL, database: str, quote: str) -> str:
    values = {database: url.database, "host": url.host, "port": url.port, "user": url.username}
    return " ".join(f"{name}={_quoted(str(value), quote)}" for name, value in values.items() if value)


_PLAIN = re.compile(r"[A-Za-z0-9_.:/@+-]+")  # what is neither a space nor means anything to either


def _quoted(value: str, quote: str) -> str:
    """Write a value as libpq and DuckDB's MySQL client read it."""
    if _PLAIN.fullmatch(value):
        return value
    escaped = value.replace("\\", "\\\\").replace(quote, f"\\{quote}")
    return f"{quote}{escaped}{quote}"


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


# The DuckLake versions that a connection allows: of a new lake, of an existing one, and of a migration.
#
# *Source:* docs/sources.md, DuckLake 1.1.


_MIGRATE = "DuckLakeMigrateOperator(to_version={!r})"


def version_of_new_lake(settings: ConnectionSettings) -> SpecVersion:
    """Return the version that a new lake gets."""
    return settings.ducklake_version or DEFAULT


def newest_version(settings: ConnectionSettings) -> SpecVersion | None:
    """Return the newest version that a lake may have, and be migrated to; None: any that can be written."""
    return settings.ducklake_version or settings.max_version


def check_lake(settings: ConnectionSettings, version: SpecVersion) -> None:
    """Refuse an existing lake that is not of the connection's versions."""
    who = f"The lake has DuckLake {version.value}: {opened_by(version)}."
    pinned, newest = settings.ducklake_version, settings.max_version
    if pinned is not None and version > pinned:
        raise settings.invalid(
            fields.DUCKLAKE_VERSION,
            f"DuckLake catalog version is {version.value!r}, which is newer than the requested version "
            f"{pinned.value!r}. Cannot downgrade a DuckLake catalog. {who} Write {version.value!r}, or clear "
            "the field.",
        )
    if pinned is not None and version < pinned:
        raise settings.invalid(
            fields.DUCKLAKE_VERSION,
            f"DuckLake catalog version mismatch: catalog version is {version.value}, but the connection "
            f"requires version {pinned.value}. {who} Migrate it with {_MIGRATE.format(pinned.value)}, or "
            "clear the field.",
        )
    if newest is not None and version > newest:
        raise settings.invalid(
            fields.MAX_VERSION,
            f"The connection allows DuckLake {newest.value} at most. {who} Write {version.value!r} if all "
            "clients of the lake open it, or use another lake.",
        )


def check_migration(settings: ConnectionSettings, to_version: str) -> None:
    """Refuse a migration to a version that the connection does not allow."""
    target = next((one for one in SpecVersion if one.value == to_version), None)
    if target is None:
        return  # which the migration refuses
    then = f"At DuckLake {to_version}, {opened_by(target)}. Nothing was changed."
    pinned, newest = settings.ducklake_version, settings.max_version
    if pinned not in (None, target):
        raise settings.invalid(
            fields.DUCKLAKE_VERSION,
            f"The connection requires DuckLake {pinned.value}, and the lake is to be migrated to "
            f"{to_version}. {then} Migrate it to {pinned.value}, or write {to_version!r} into the field "
            "first.",
        )
    if newest is not None and target > newest:
        raise settings.invalid(
            fields.MAX_VERSION,
            f"The connection allows DuckLake {newest.value} at most, and the lake is to be migrated to "
            f"{to_version}. {then} Write {to_version!r} into the field first, as soon as all clients of the "
            "lake open it.",
        )
