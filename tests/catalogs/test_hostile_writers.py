"""What a writer makes in the catalog's database never runs as a reader, a maintainer or the administrator."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace

import psycopg
import pyarrow as pa
import pymysql
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import DuckLakeError, UntrustedValueError
from tests.catalogs.database_roles import Users, all_of, run, users
from tests.interop.lakes import alone
from tests.reference import mariadb, postgres
from tests.reference.catalogs import CatalogDatabase, data_directory

ROWS, MANY = pa.table({"id": pa.array([1, 2], pa.int64())}), pa.table({"id": pa.array(range(50), pa.int64())})
ADMINISTRATOR = "administrator"


@dataclass(frozen=True)
class Attempt:
    """What a writer runs; ``refuses``: who reads then is told of the relation."""

    name: str
    statements: tuple[str, ...]
    refuses: bool = False
    daily: bool = False


def _on_path(name: str, *statements: str, daily: bool = False) -> Attempt:
    """Return what fits a call of ours better than PostgreSQL's own."""
    return Attempt(name, statements, daily=daily)


def _relation(name: str, *statements: str, daily: bool = False) -> Attempt:
    return Attempt(name, statements, refuses=True, daily=daily)


def _operator(name: str, left: str, right: str, *, daily: bool = False) -> Attempt:
    body = "RETURNS boolean IMMUTABLE LANGUAGE sql AS 'SELECT public.evil()'"
    made = f"CREATE FUNCTION compare({left}, {right}) {body}"
    operator = f"CREATE OPERATOR {name} (LEFTARG = {left}, RIGHTARG = {right}, FUNCTION = compare)"
    return _on_path(f"operator {name} of {left} and {right}", made, operator, daily=daily)


def _function(name: str, arguments: str, returns: str, value: str) -> Attempt:
    body = f"SELECT CASE WHEN public.evil() THEN {value} END"
    return _on_path(
        f"function {name} of {arguments or 'nothing'}",
        f"CREATE FUNCTION {name}({arguments}) RETURNS {returns} IMMUTABLE LANGUAGE sql AS $${body}$$",
    )


def _in_place(kind: str, what: str, table: str = "{rows}", *, daily: bool = False) -> Attempt:
    return _relation(
        f"{kind} in the place of {table}",
        f"ALTER TABLE {table} RENAME TO kept",
        what.format(table=table),
        f"GRANT SELECT ON {table}, kept TO PUBLIC",
        daily=daily,
    )


def _trigger(when: str, each: str = "STATEMENT", table: str = "{rows}", *, daily: bool = False) -> Attempt:
    text = f"CREATE TRIGGER t {when} ON {table} FOR EACH {each} EXECUTE FUNCTION evil_trigger()"
    return _relation(f"trigger {when} on {table}", text, daily=daily)


def _rule(event: str) -> Attempt:
    return _relation(f"rule on {event}", f"CREATE RULE r AS ON {event} TO {{rows}} DO ALSO SELECT evil()")


VIEW = "CREATE VIEW {table} AS SELECT * FROM kept WHERE evil()"
OF_POSTGRES = [
    _operator("=", "varchar", "varchar", daily=True),
    _operator("<>", "varchar", "varchar"),
    _operator("~~", "varchar", "varchar"),
    _operator("~~", "name", "varchar"),
    _operator("=", "name", "varchar"),
    _operator("<=", "bigint", "varchar"),
    _operator("||", "varchar", "varchar"),
    _operator("=", "boolean", "varchar"),
    _function("lower", "varchar", "text", "$1::text"),
    _function("current_setting", "varchar", "text", "''::text"),
    _function("pg_advisory_xact_lock", "integer", "integer", "1"),
    _function("pg_get_userbyid", "integer", "name", "''::name"),
    _function("unnest", "varchar[]", "text", "''::text"),
    _function("like_escape", "varchar, varchar", "text", "''::text"),
    _on_path(
        "aggregate max of varchar",
        "CREATE FUNCTION step(varchar, varchar) RETURNS varchar RETURN CASE WHEN public.evil() THEN $1 END",
        "CREATE AGGREGATE max(varchar) (SFUNC = step, STYPE = varchar)",
    ),
    _on_path(
        "types of PostgreSQL's names",
        *(f"CREATE DOMAIN {one} AS text CHECK (evil())" for one in ("text", "uuid", "regnamespace", "bytea")),
    ),
    _on_path("cast", "CREATE CAST (varchar AS boolean) WITH FUNCTION evil(varchar) AS IMPLICIT"),
    _on_path("schema of the reader's name", 'CREATE SCHEMA "{reader}"'),
    _on_path("event trigger", "CREATE EVENT TRIGGER e ON ddl_command_start EXECUTE FUNCTION evil_trigger()"),
    _on_path(
        "operator class",
        "CREATE OPERATOR CLASS o DEFAULT FOR TYPE bigint USING hash AS FUNCTION 1 hashint8(bigint)",
    ),
    _in_place("view", VIEW, daily=True),
    _in_place("view", VIEW, "{deletes}"),
    _in_place("materialized view", "CREATE MATERIALIZED VIEW {table} AS SELECT * FROM kept WHERE evil()"),
    _in_place("partitioned table", "CREATE TABLE {table} (LIKE kept) PARTITION BY RANGE (row_id)"),
    _in_place("foreign table", "CREATE FOREIGN TABLE {table} (row_id bigint) SERVER elsewhere"),
    _relation("view in the place of a table of ours", "CREATE VIEW airflow_ducklake_new AS SELECT evil()"),
    _relation("view with a name of 1.1", "CREATE VIEW ducklake_view_column_tag AS SELECT evil()"),
    _trigger("AFTER INSERT OR UPDATE OR DELETE", daily=True),
    _trigger("BEFORE INSERT", "ROW"),
    _trigger("AFTER DELETE", "ROW", "{deletes}"),
    _trigger("BEFORE TRUNCATE"),
    _relation(
        "deferred constraint trigger",
        "CREATE CONSTRAINT TRIGGER t AFTER DELETE ON {rows} DEFERRABLE INITIALLY DEFERRED"
        " FOR EACH ROW EXECUTE FUNCTION evil_trigger()",
    ),
    _relation(
        "trigger of a table that refers to the rows",
        "ALTER TABLE {rows} ADD UNIQUE (row_id)",
        "CREATE TABLE child (row_id bigint REFERENCES {rows} (row_id) ON DELETE CASCADE)",
        "INSERT INTO child SELECT row_id FROM {rows}",
        "CREATE CONSTRAINT TRIGGER t AFTER DELETE ON child DEFERRABLE INITIALLY DEFERRED"
        " FOR EACH ROW EXECUTE FUNCTION evil_trigger()",
    ),
    _rule("INSERT"),
    _rule("UPDATE"),
    _rule("DELETE"),
    _relation(
        "policy",
        "CREATE POLICY p ON {rows} USING (evil())",
        "ALTER TABLE {rows} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY",
    ),
    _relation(
        "table that inherits",
        "CREATE TABLE child () INHERITS ({rows})",
        "INSERT INTO child VALUES (9, 1)",
        "CREATE TRIGGER t BEFORE DELETE ON child FOR EACH ROW EXECUTE FUNCTION evil_trigger()",
    ),
    _relation(
        "partition of a table of the writer's",
        "CREATE FUNCTION part(a bigint) RETURNS boolean IMMUTABLE LANGUAGE plpgsql"
        " AS 'BEGIN RETURN public.evil(); END'",
        "CREATE TABLE parent (LIKE {rows}) PARTITION BY LIST (part(row_id))",
        "ALTER TABLE parent ATTACH PARTITION {rows} FOR VALUES IN (true)",
    ),
    _relation("check", "ALTER TABLE {rows} ADD CHECK (evil()) NOT VALID"),
    _relation("generated column", "ALTER TABLE {rows} ADD g boolean GENERATED ALWAYS AS (evil()) STORED"),
    _relation("default", "ALTER TABLE {rows} ADD d boolean", "ALTER TABLE {rows} ALTER d SET DEFAULT evil()"),
    _relation("index on an expression", "CREATE INDEX ON {rows} ((evil()))", daily=True),
    _relation("index with a condition", "CREATE INDEX ON {rows} (row_id) WHERE evil()"),
    _relation("statistics", "CREATE STATISTICS s ON (evil()) FROM {rows}"),
    _relation(
        "type with a check",
        "CREATE DOMAIN checked AS bigint CHECK (evil())",
        "ALTER TABLE {rows} ALTER id TYPE checked",
    ),
    _relation("type of several values", "CREATE TYPE pair AS (a bigint)", "ALTER TABLE {rows} ADD c pair"),
]

LOCK = (
    4242  # which the code takes, as whoever runs it: that works in a transaction that may write nothing, too
)
EVIL = f"""
CREATE FUNCTION public.evil() RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN
    IF current_user OPERATOR(pg_catalog.<>) '{{writer}}'::pg_catalog.name
    THEN PERFORM pg_catalog.pg_advisory_lock_shared({LOCK}, 1); END IF;
    RETURN true;
END $$
"""
EVILS = (
    EVIL,
    "CREATE FUNCTION evil(varchar) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT public.evil()'",
    "CREATE FUNCTION evil(bigint) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT public.evil()'",
    (
        "CREATE FUNCTION evil_trigger() RETURNS trigger LANGUAGE plpgsql"
        " AS 'BEGIN PERFORM public.evil(); RETURN coalesce(NEW, OLD); END'"
    ),
)

SERVER = (
    "CREATE FOREIGN DATA WRAPPER nothing",
    "CREATE SERVER elsewhere FOREIGN DATA WRAPPER nothing",
    "GRANT USAGE ON FOREIGN SERVER elsewhere TO {writer}",
)

Verb = Callable[[Lake], object]


def _delete(lake: Lake) -> None:
    alone(lake).delete_rows("w", "id = 1")


LOOKS: tuple[Verb, ...] = (
    lambda lake: lake.read_arrow("w"),
    lambda lake: lake.read_arrow("w", filter="id > 0"),
    lambda lake: lake.tables(),
    lambda lake: lake.reads.view("nothing"),
    lambda lake: lake.tags(),
    lambda lake: lake.table_info("w"),
    lambda lake: lake.table_health(),
    lambda lake: lake.row_count("w"),
    lambda lake: lake.insertions("w", 0, lake.current_snapshot().id),
    lambda lake: lake.flush_inlined_data(dry_run=True),
    lambda lake: lake.verify(),
)
CHANGES: tuple[Verb, ...] = (
    lambda lake: lake.append_arrow("w", ROWS),
    _delete,
    lambda lake: lake.flush_inlined_data(),
    lambda lake: lake.expire_snapshots(keep_last=1),
    lambda lake: lake.append_arrow("w", ROWS),
)
VICTIMS = {"reader": LOOKS, "maintainer": (*LOOKS, *CHANGES), ADMINISTRATOR: (*LOOKS[:2], *CHANGES)}


@dataclass(frozen=True)
class Stage:
    """A lake with tables of the writer's, and the names that attempts are written with."""

    people: Users
    names: dict[str, str]

    def as_writer(self, *statements: str) -> None:
        """Run statements; what the database refuses a writer is not there then."""
        catalog = self.people.of("writer")
        with psycopg.connect(catalog.location, autocommit=True) as connection:
            for statement in statements:
                with suppress(psycopg.errors.InsufficientPrivilege, psycopg.errors.UndefinedObject):
                    connection.execute(statement.format_map(self.names))

    def who_ran_it(self) -> list[str]:
        """Return the users other than the writer who ran the writer's code on a connection that is open."""
        with psycopg.connect(self.people.catalog.location) as connection:
            query = "SELECT usename FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE classid = %s"
            return [name for (name,) in connection.execute(query, (LOCK,))]


@pytest.fixture(scope="module")
def template(server_port, tmp_path_factory) -> Iterator[Users]:
    """A lake that the three have their roles on, with rows and deletes of the writer's in the catalog."""
    with postgres.fresh_database(server_port("postgres")) as location:
        data = data_directory(tmp_path_factory.mktemp("hostile"))
        catalog = CatalogDatabase("postgres", location, data)
        with users(catalog) as people:
            Lake.create(catalog.sqlalchemy_url, catalog.data_path).close()
            people.grant()
            run(catalog, *(one.format_map(people.names) for one in SERVER))
            _fill(people.of("writer"))
            yield people


def _fill(catalog: CatalogDatabase) -> None:
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        alone(lake).create_table("w", {"id": "int64"})
        lake.append_arrow("w", MANY)
        _delete(lake)
        lake.append_arrow("w", ROWS)


@pytest.fixture
def stage(template) -> Iterator[Stage]:
    """A copy of that lake for one attempt."""
    port, name = int(template.catalog.server["port"]), f"lake_{uuid.uuid4().hex}"
    with psycopg.connect(postgres.libpq(port, "postgres"), autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name} TEMPLATE {template.catalog.database} STRATEGY file_copy")
        admin.execute(f"GRANT CONNECT ON DATABASE {name} TO PUBLIC")
        try:
            copy = replace(template.catalog, location=postgres.libpq(port, name))
            made = {"rows": "ducklake_inlined_data_1_1", "deletes": "ducklake_inlined_delete_1"}
            yield Stage(replace(template, catalog=copy), template.names | made)
        finally:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


def _attempts(attempts: list[Attempt]) -> list[object]:
    return [
        pytest.param(one, id=one.name, marks=() if one.daily else pytest.mark.databases) for one in attempts
    ]


@pytest.mark.parametrize("attempt", _attempts(OF_POSTGRES))
def test_nothing_a_writer_makes_runs_as_another_role(stage, attempt):
    stage.as_writer(*EVILS, *attempt.statements)

    told = {}
    for victim, verbs in VICTIMS.items():
        catalog = stage.people.catalog if victim == ADMINISTRATOR else stage.people.of(victim)
        with ExitStack() as opened:
            told[victim] = _errors(opened, catalog, verbs)
            assert stage.who_ran_it() == [], victim

    assert [victim for victim, errors in told.items() if UntrustedValueError in errors] == (
        [*VICTIMS] if attempt.refuses else []
    )


def _view_of_mariadb(security: str, table: str, *, daily: bool = False) -> Attempt:
    return _relation(
        f"view of {table} with the rights of its {security}",
        f"RENAME TABLE {table} TO kept",
        f"CREATE SQL SECURITY {security} VIEW {table} AS SELECT * FROM kept WHERE evil()",
        daily=daily,
    )


def _trigger_of_mariadb(when: str) -> Attempt:
    return _on_path(f"trigger {when}", f"CREATE TRIGGER t {when} FOR EACH ROW SET @evil = evil()")


def _function_of_mariadb(name: str) -> Attempt:
    return _on_path(f"function {name}", f"CREATE FUNCTION {name}(a INT) RETURNS INT RETURN evil()")


OF_MARIADB = [
    *(
        _view_of_mariadb(security, f"{table}", daily=table == "ducklake_tag")
        for table in ("ducklake_tag", "ducklake_snapshot", "ducklake_data_file", "airflow_ducklake_tag")
        for security in ("INVOKER", "DEFINER")
    ),
    _relation(
        "view with a name of ours", "CREATE SQL SECURITY INVOKER VIEW airflow_ducklake_new AS SELECT evil()"
    ),
    *(
        _trigger_of_mariadb(f"{time} {event} ON {table}")
        for table in ("ducklake_snapshot", "ducklake_table_stats")
        for time in ("BEFORE", "AFTER")
        for event in ("INSERT", "UPDATE", "DELETE")
    ),
    *map(_function_of_mariadb, ("max", "min", "count", "coalesce", "utc_timestamp", "get_lock", "database")),
    _relation("generated column", "ALTER TABLE ducklake_tag ADD g BIGINT AS (object_id + 1) VIRTUAL"),
    _on_path("generated column with a function", "ALTER TABLE ducklake_tag ADD g INT AS (evil()) STORED"),
    _on_path("default", "ALTER TABLE ducklake_tag ALTER key SET DEFAULT (evil())"),
    _on_path("check", "ALTER TABLE ducklake_snapshot ADD CHECK (evil())"),
    _on_path(
        "view of another definer",
        "RENAME TABLE ducklake_tag TO kept",
        "CREATE DEFINER = root@localhost VIEW ducklake_tag AS SELECT * FROM kept WHERE evil()",
        "RENAME TABLE kept TO ducklake_tag",
    ),
    _on_path(
        "trigger of another definer",
        "CREATE DEFINER = root@localhost TRIGGER t BEFORE INSERT ON ducklake_snapshot"
        " FOR EACH ROW SET @evil = evil()",
    ),
    _on_path("event", "CREATE EVENT e ON SCHEDULE EVERY 1 SECOND DO SET @evil = evil()"),
]
OF_MARIADB_EVIL = """
CREATE FUNCTION evil() RETURNS INT SQL SECURITY INVOKER
BEGIN
    IF CURRENT_USER() NOT LIKE '{writer}@%' THEN DO GET_LOCK('evil', 0); END IF;
    RETURN 1;
END
"""


@pytest.fixture
def mariadb_users(new_catalog) -> Iterator[Users]:
    """The three on a lake of MariaDB; what the grants of the page keep from the writer, it has here."""
    catalog = new_catalog("mariadb")
    with users(catalog) as people:
        with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
            alone(lake).create_table("w", {"id": "int64"})
            lake.tag("kept")  # which makes the table of tags
        people.grant()
        everything = all_of(catalog.database)
        run(catalog, f"GRANT ALL ON {everything} TO {people.names['writer']}")
        run(catalog, f"GRANT SELECT, EXECUTE ON {everything} TO {people.names['reader']}")
        yield people


@pytest.mark.parametrize("attempt", _attempts(OF_MARIADB))
def test_nothing_a_writer_makes_on_mariadb_runs_as_another_user(mariadb_users, attempt):
    people = mariadb_users
    server = people.of("writer").server
    with (
        closing(
            pymysql.connect(
                host=server["host"],
                port=int(server["port"]),
                user=people.names["writer"],
                database=people.catalog.database,
                autocommit=True,
            )
        ) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute(OF_MARIADB_EVIL.format_map(people.names))
        for statement in attempt.statements:
            with suppress(pymysql.MySQLError):  # the server refuses much of it, in its own words
                cursor.execute(statement)

    told = {}
    for victim, verbs in VICTIMS.items():
        catalog = people.catalog if victim == ADMINISTRATOR else people.of(victim)
        with ExitStack() as opened:
            told[victim] = _errors(opened, catalog, verbs)
            with mariadb.admin(int(server["port"])) as cursor:
                cursor.execute("SELECT IS_USED_LOCK('evil')")
                assert cursor.fetchone() == (None,), victim

    assert [victim for victim, errors in told.items() if UntrustedValueError in errors] == (
        [*VICTIMS] if attempt.refuses else []
    )


def test_rows_are_not_committed_to_a_table_that_its_owner_gave_a_trigger(stage):
    with Lake.connect(stage.people.of("maintainer").sqlalchemy_url) as lake:
        before = lake.current_snapshot().id
        stage.as_writer(*EVILS, "CREATE TRIGGER t BEFORE INSERT ON {rows} EXECUTE FUNCTION evil_trigger()")

        with pytest.raises(UntrustedValueError, match=r"has a trigger \(its owner is writer_"):
            lake.append_arrow("w", ROWS)

        assert lake.current_snapshot().id == before
        assert stage.who_ran_it() == []


def _errors(opened: ExitStack, catalog: CatalogDatabase, verbs: tuple[Verb, ...]) -> set[type]:
    """Run verbs on a lake that stays open; return the errors of those that end in one."""
    found: set[type] = set()
    try:
        lake = opened.enter_context(Lake.connect(catalog.sqlalchemy_url))
    except DuckLakeError as error:
        return {type(error)}
    for verb in verbs:
        try:
            verb(lake)
        except DuckLakeError as error:
            found.add(type(error))
    return found
