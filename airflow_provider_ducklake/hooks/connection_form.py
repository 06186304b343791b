"""The fields of a DuckLake connection, in one table that every form of Airflow is made from.

Airflow 3.2 and later read the form from the provider's metadata, 3.1 asks the hook for widgets: both come
from here. The names are what the connection's extra may hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

CONNECTION_TYPE = "ducklake"


@dataclass(frozen=True, slots=True)
class CatalogType:
    """A database that may hold a catalog: its name for people, and SQLAlchemy's driver.

    ``attach`` is what DuckDB's ATTACH puts before its place; ``server`` how the place of a server is written
    there (the word for its database, the quote), None where it is a file. ``why_no_schema``: why a metadata
    schema cannot be named, and what to do.
    """

    name: str
    driver: str
    attach: str
    server: tuple[str, str] | None = None
    why_no_schema: str | None = None


CATALOG_TYPES = {
    "postgres": CatalogType("PostgreSQL", "postgresql+psycopg", "postgres:", ("dbname", "'")),
    "mysql": CatalogType(
        "MySQL",
        "mysql+pymysql",
        "mysql:",
        ("database", '"'),
        "a MySQL schema is a database. Put it in the Database field, and clear this one.",
    ),
    "sqlite": CatalogType(
        "SQLite", "sqlite", "sqlite:", why_no_schema="SQLite has no schemas. Clear the field."
    ),
    "duckdb": CatalogType("DuckDB", "duckdb", ""),
}


@dataclass(frozen=True, slots=True)
class ExtraField:
    """A field of the connection's extra; ``schema`` is JSON schema, with "null" where it may stay empty."""

    name: str
    label: str
    description: str
    schema: dict[str, Any]


@dataclass(frozen=True, slots=True)
class StandardField:
    """A field that every Airflow connection has, as our form names it."""

    name: str
    label: str
    placeholder: str = ""


CATALOG_TYPE = ExtraField(
    "catalog_type",
    "Catalog type",
    "The database that holds the lake's catalog; mysql is for MariaDB, too. The catalog of sqlite and duckdb "
    "is the file in the Database field: every worker must see it, and only one process at a time can open a "
    "DuckDB file.",
    {"type": "string", "enum": list(CATALOG_TYPES), "default": "postgres"},
)
METADATA_SCHEMA = ExtraField(
    "metadata_schema",
    "Metadata schema",
    "PostgreSQL and DuckDB: the schema that holds the catalog's tables; empty for public, or main.",
    {"type": ["string", "null"]},
)
DATA_PATH = ExtraField(
    "data_path",
    "Data path",
    "Where the lake keeps its files, such as /data/files/ or s3://bucket/lake/. A new lake needs it; for an "
    "existing one it must be empty or the lake's own.",
    {"type": ["string", "null"]},
)
STORAGE_OPTIONS = ExtraField(
    "storage_options",
    "Storage options",
    "JSON object passed to the file system (fsspec), such as "
    '{"key": "…", "secret": "…", "endpoint_url": "https://…"} for S3.',
    {"type": ["object", "null"]},
)
STORAGE_CONN_ID = ExtraField(
    "storage_conn_id",
    "Storage connection",
    "Id of an Airflow connection of type aws, google_cloud_platform, wasb or adls, whose credentials open "
    "the lake's files. Storage options win over it.",
    {"type": ["string", "null"]},
)
SPARK_PACKAGES = ExtraField(
    "spark_packages",
    "Packages of Spark",
    "auto: a task whose Spark lacks the file system of a store that it reads gets the Maven package of it "
    "(hadoop-aws, hadoop-azure), in the version of Spark's Hadoop. Empty: such a task is refused.",
    {"type": ["string", "null"], "enum": ["auto"]},
)
CREATE_LAKE = ExtraField(
    "create_lake",
    "Create the lake",
    "The first task that opens the lake creates it, if the database holds none.",
    {"type": ["boolean", "null"]},
)
COMMIT_NAMESPACE = ExtraField(
    "commit_namespace",
    "Commit namespace",
    "Distinguishes this Airflow from others that run DAGs with the same names on this lake, so that a "
    "retry finds its own commit; empty for a hash of Airflow's [api] base_url. If it changes, tasks no "
    "longer find their earlier commits.",
    {"type": ["string", "null"]},
)
FOREIGN_FILES = ExtraField(
    "foreign_files",
    "Foreign files",
    "Tasks may write and delete files outside the data path where the catalog names them. Files added from "
    "elsewhere are read in any case.",
    {"type": ["boolean", "null"]},
)
DUCKLAKE_VERSION = ExtraField(
    "ducklake_version",
    "DuckLake version",
    "The version of a new lake (empty: 1.0), and the only one that an existing lake may have. DuckDB 1.x "
    "cannot open a lake of 1.1.",
    {"type": ["string", "null"], "enum": ["1.0", "1.1"]},
)
MAX_VERSION = ExtraField(
    "max_version",
    "Newest DuckLake version",
    "Tasks refuse a newer lake, and migrate none to a newer version.",
    {"type": ["string", "null"], "enum": ["1.0", "1.1"]},
)
ENCRYPTED = ExtraField(
    "encrypted",
    "Encrypted",
    "A new lake encrypts its files; an existing one that does not is refused.",
    {"type": ["boolean", "null"]},
)
KEY_BYTES = ExtraField(
    "key_bytes",
    "Length of keys",
    "Bytes of the keys of new files of an encrypted lake (empty: as in its newest file).",
    {"type": ["integer", "null"], "enum": [16, 24, 32]},
)
DOCUMENT_KEY_FILE = ExtraField(
    "document_key_file",
    "Document key file",
    "Path of a file with 32 random bytes in base64, on the workers and where Spark's drivers run: the key "
    "that encrypts the job documents of an encrypted lake (empty: a key in the catalog; client mode only).",
    {"type": ["string", "null"]},
)
LOCK_TIMEOUT = ExtraField(
    "lock_timeout_seconds",
    "Lock timeout",
    "Seconds that a task waits for a lock of the catalog that another session holds (empty: 300).",
    {"type": ["number", "null"]},
)
STATEMENT_TIMEOUT = ExtraField(
    "statement_timeout_seconds",
    "Statement timeout",
    "Seconds that a statement may take in which the catalog's server says nothing (empty: 600).",
    {"type": ["number", "null"]},
)
EXTRA_FIELDS = (
    CATALOG_TYPE,
    DATA_PATH,
    STORAGE_CONN_ID,
    STORAGE_OPTIONS,
    CREATE_LAKE,
    METADATA_SCHEMA,
    DUCKLAKE_VERSION,
    ENCRYPTED,
    MAX_VERSION,
    KEY_BYTES,
    DOCUMENT_KEY_FILE,
    SPARK_PACKAGES,
    FOREIGN_FILES,
    COMMIT_NAMESPACE,
    LOCK_TIMEOUT,
    STATEMENT_TIMEOUT,
)

HOST = StandardField("host", "Host", "catalog.example.com (empty for SQLite and DuckDB)")
PORT = StandardField("port", "Port", "5432, for MySQL 3306")
LOGIN = StandardField("login", "User")
PASSWORD = StandardField("password", "Password")
DATABASE = StandardField("schema", "Database", "lakehouse, or /data/lake.sqlite and the type in Extra Fields")
STANDARD_FIELDS = (HOST, PORT, LOGIN, PASSWORD, DATABASE)


def _relabeling() -> dict[str, str]:
    return {field.name: field.label for field in STANDARD_FIELDS}


def _placeholders() -> dict[str, str]:
    return {field.name: field.placeholder for field in STANDARD_FIELDS if field.placeholder}


def conn_fields() -> dict[str, dict[str, Any]]:
    """Return the custom fields for the provider's metadata."""
    return {
        field.name: {"label": field.label, "description": field.description, "schema": dict(field.schema)}
        for field in EXTRA_FIELDS
    }


def metadata_field_behaviour() -> dict[str, Any]:
    """Return the standard fields' behaviour for the provider's metadata."""
    return {"hidden-fields": [], "relabeling": _relabeling(), "placeholders": _placeholders()}


def hook_field_behaviour() -> dict[str, Any]:
    """Return the standard fields' behaviour as a hook method spells it."""
    return {"hidden_fields": [], "relabeling": _relabeling(), "placeholders": _placeholders()}


def form_widgets() -> dict[str, Any]:
    """Return the custom fields as widgets for Airflow 3.1, where a text takes the place of a JSON object."""
    from wtforms import StringField  # type: ignore[import-untyped]
    from wtforms.validators import Optional, any_of  # type: ignore[import-untyped]

    def validators(field: ExtraField) -> list[Any]:
        given = [any_of(field.schema["enum"])] if "enum" in field.schema else []
        return given if "default" in field.schema else [Optional(), *given]

    return {
        field.name: StringField(
            field.label,
            validators=validators(field),
            description=field.description,
            default=field.schema.get("default"),
        )
        for field in EXTRA_FIELDS
    }
