"""What DuckDB's SQL has but DuckLake, or the DDL operator, does not: one plain sentence each."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_provider_ducklake.lake.errors import InvalidStatementError
    from airflow_provider_ducklake.lake.sql.duckdb.cursor import Cursor

_NO_KEYS = "DuckLake has no primary keys and no unique constraints. Leave it out."
CONSTRAINTS = {
    "PRIMARY": _NO_KEYS,
    "UNIQUE": _NO_KEYS,
    "CHECK": "DuckLake has no CHECK constraints. Leave it out.",
    "FOREIGN": "DuckLake has no foreign keys. Leave it out.",
    "REFERENCES": "DuckLake has no foreign keys. Leave it out.",
    "GENERATED": "DuckLake has no generated columns. Use a view.",
    "AS": "DuckLake has no generated columns. Use a view.",
    "COLLATE": "DuckLake has no collations. Leave it out.",
    "CONSTRAINT": "DuckLake has no named constraints. Leave the name out; NOT NULL is the only constraint.",
    "USING": "DuckLake has no compression per column. Leave it out.",
}
COLUMN_OPTIONS = {
    **CONSTRAINTS,
    "COMMENT": "write a comment as a statement of its own: COMMENT ON COLUMN schema.table.column IS 'text'.",
}
_ROWS = "this operator changes tables, not rows. Use the operator of that verb."
STATEMENTS = {
    "INSERT": "this operator changes tables, not rows. Use the insert operator.",
    "UPDATE": _ROWS,
    "DELETE": _ROWS,
    "MERGE": _ROWS,
    "COPY": _ROWS,
    "SELECT": "this operator changes tables and returns no rows. Use the SQL operator.",
    "FROM": "this operator changes tables and returns no rows. Use the SQL operator.",
    "WITH": "this operator changes tables and returns no rows. Use the SQL operator.",
    "CALL": "DuckDB's maintenance calls are not DDL. Use the operator of that task.",
    "BEGIN": "the operator runs all statements in one transaction. Leave it out.",
    "COMMIT": "the operator runs all statements in one transaction. Leave it out.",
    "ROLLBACK": "the operator runs all statements in one transaction. Leave it out.",
    "SET": "there is no session to change. Leave it out, and name tables with their schema.",
    "USE": "there is no session to change. Leave it out, and name tables with their schema.",
}
ANY_STATEMENT = (
    "this operator does not run this statement. It runs CREATE, ALTER and DROP of SCHEMA, TABLE and VIEW, "
    "CREATE and DROP of MACRO, COMMENT ON and TRUNCATE."
)
_TEMPORARY = "a temporary table or view belongs to a session, not to a lake. Leave the word out."
OBJECTS = {
    "TEMP": _TEMPORARY,
    "TEMPORARY": _TEMPORARY,
    "UNLOGGED": "DuckLake has no unlogged tables. Leave the word out.",
    "PERSISTENT": "every table of a lake is persistent. Leave the word out.",
    "INDEX": "DuckLake has no indexes. Partition or sort the table.",
    "UNIQUE": "DuckLake has no indexes. Partition or sort the table.",
    "SEQUENCE": "DuckLake has no sequences. Use uuid() as a default.",
    "TYPE": "DuckLake has no user-defined types. Write the type at each column.",
    "RECURSIVE": "write the recursion inside: CREATE VIEW v AS WITH RECURSIVE …",
    "MATERIALIZED": "DuckLake has no materialized views. Create a table and insert into it.",
    "SECRET": "secrets belong to the Airflow connection.",
    "DATABASE": "a lake is one database. Create another lake with its own connection.",
}
EXISTING = "IF EXISTS is not supported here yet. Leave it out; the statement fails if the name is not there."


def refuse_object(cursor: Cursor, verb: str) -> InvalidStatementError:
    """Return the error for an object after CREATE, ALTER, DROP or COMMENT ON that is not handled."""
    word = cursor.word
    return cursor.error(
        OBJECTS.get(word, f"{verb} of this is not DDL of a lake: expected SCHEMA, TABLE, VIEW or MACRO.")
    )
