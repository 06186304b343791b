"""Histories that we and the reference write into catalogs of their own, step by step."""

from collections.abc import Callable
from dataclasses import dataclass

from airflow_provider_ducklake.lake.catalog.lake import Lake
from tests.reference.duckdb_lake import DuckLakeConnection


@dataclass(frozen=True)
class Scenario:
    """One history: what we do, the SQL that does the same, and columns whose difference is legal."""

    name: str
    ours: Callable[[Lake, DuckLakeConnection], None]  # the second is only asked for values
    reference: tuple[str, ...]
    ignored: frozenset[str] = frozenset()
    ignored_inlined: frozenset[str] = frozenset()  # besides, where inserts go to the catalog


# The reference takes an inlined NaN for a bound, over which it later loses rows; ours leave it out.
NAN_AS_BOUND = frozenset({"ducklake_table_column_stats.max_value"})

EVERY_TYPE = {
    "boolean": "boolean",
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "integer",
    "int64": "bigint",
    "uint8": "utinyint",
    "uint16": "usmallint",
    "uint32": "uinteger",
    "uint64": "ubigint",
    "float32": "float",
    "float64": "double",
    "decimal(9,2)": "decimal(9,2)",
    "decimal(18,4)": "decimal(18,4)",
    "decimal(38,10)": "decimal(38,10)",
    "date": "date",
    "time": "time",
    "timestamp": "timestamp",
    "timestamp_s": "timestamp_s",
    "timestamp_ms": "timestamp_ms",
    "timestamp_ns": "timestamp_ns",
    "timestamptz": "timestamptz",
    "varchar": "varchar",
    "json": "json",
    "blob": "blob",
    "uuid": "uuid",
    "int32[]": "integer[]",
    "struct(a int32, b varchar)": "struct(a integer, b varchar)",
    "map(varchar, int32)": "map(varchar, integer)",
    "struct(l int32[], s struct(x date, y decimal(5,1)))": (
        "struct(l integer[], s struct(x date, y decimal(5,1)))"
    ),
    "map(int32, struct(q varchar)[])": "map(integer, struct(q varchar)[])",
    "varchar[][]": "varchar[][]",
}


def _create_every_type(lake: Lake, _: DuckLakeConnection) -> None:
    columns = {f"c{number}": ours for number, ours in enumerate(EVERY_TYPE)}
    with lake.transaction() as tx:
        tx.create_table("main.every", columns, not_null=["c3"])


_EVERY_TYPE_SQL = (
    "CREATE TABLE main.every ("
    + ", ".join(
        f"c{number} {theirs}{' NOT NULL' if number == 3 else ''}"
        for number, theirs in enumerate(EVERY_TYPE.values())
    )
    + ")"
)

TRANSFORMS = ["k", "year(ts)", "month(ts)", "day(ts)", "hour(ts)", "bucket(4, k)"]


def _partitioned(*expressions: str) -> Callable[[Lake, DuckLakeConnection], None]:
    def ours(lake: Lake, reference: DuckLakeConnection) -> None:
        rows = reference.arrow(_PARTITION_ROWS)
        with lake.transaction() as tx:
            tx.create_table("main.p", {"k": "varchar", "ts": "timestamp"}, partition_by=expressions)
        with lake.transaction() as tx:
            tx.append_arrow("main.p", rows)

    return ours


_PARTITION_ROWS = """
SELECT * FROM (VALUES
    ('a', TIMESTAMP '2024-01-31 23:59:59.9'), (NULL, TIMESTAMP '1969-12-31 23:00:00'), ('a', NULL),
    ('x/y=z %ä', TIMESTAMP '2024-02-01 00:00:00'), ('', TIMESTAMP '0001-01-01 00:00:00'),
    ('a', TIMESTAMP '2024-01-31 23:00:00'), ('..', TIMESTAMP '9999-12-31 12:00:00')) t(k, ts)"""

_VALUES = "(SELECT i, s, d FROM (VALUES {}) v(i, s, d))"
_FIRST = _VALUES.format("(1, 'a', 1.5::double), (3, NULL, 'nan'::double), (2, 'b', NULL)")
_SECOND = _VALUES.format("(2, 'aa', 1.25::double)")
_EXTREME = _VALUES.format(
    "((-2147483648)::integer, NULL, '-inf'::double), (2147483647::integer, 'zz', 'inf'::double),"
    " (NULL, '', 'nan'::double)"
)
_NULLS = _VALUES.format("(NULL::integer, NULL::varchar, NULL::double)")


def _append(*selects: str, table: str = "main.t") -> Callable[[Lake, DuckLakeConnection], None]:
    def ours(lake: Lake, reference: DuckLakeConnection) -> None:
        with lake.transaction() as tx:
            tx.create_table(table, {"i": "int32", "s": "varchar", "d": "float64"})
        for select in selects:
            with lake.transaction() as tx:
                tx.append_arrow(table, reference.arrow(f"FROM {select}"))

    return ours


def _append_sql(*selects: str) -> tuple[str, ...]:
    create = "CREATE TABLE main.t (i integer, s varchar, d double)"
    return (create, *(f"INSERT INTO main.t FROM {select}" for select in selects))


def _two_tables(lake: Lake, reference: DuckLakeConnection) -> None:
    for name in ("a", "b"):
        with lake.transaction() as tx:
            tx.create_table(("main", name), {"i": "int32"})
    rows = reference.arrow("FROM range(3) t(i) SELECT i::integer i")
    with lake.transaction(author="me", message="both") as tx:
        tx.append_arrow("main.b", rows)
        tx.append_arrow("main.a", rows.slice(0, 2))
        tx.append_arrow("main.b", rows.slice(2))


def _deletes_in_two_tables(lake: Lake, reference: DuckLakeConnection) -> None:
    rows = reference.arrow("FROM range(20) t(i) SELECT i::integer i")
    for name in ("a", "b"):
        with lake.transaction() as tx:
            tx.create_table(("main", name), {"i": "int32"})
        lake.append_arrow(("main", name), rows)
    lake.set_option("data_inlining_row_limit", 0)
    with lake.transaction() as tx:
        for name in ("b", "a"):
            (file,) = lake.table_snapshot(("main", name), with_files=True).files or ()
            tx.delete_at(("main", name), {file.id: [3]}, [])


def _create_and_fill(lake: Lake, reference: DuckLakeConnection) -> None:
    with lake.transaction() as tx:
        tx.create_schema("s")
        tx.create_table("s.t", {"i": "int32"}, partition_by=["i"])
        tx.append_arrow("s.t", reference.arrow("FROM range(2) t(i) SELECT i::integer i"))


def _drops(lake: Lake, reference: DuckLakeConnection) -> None:
    rows = reference.arrow("FROM range(2) t(i) SELECT i::integer i")
    with lake.transaction() as tx:
        tx.create_schema("s")
    with lake.transaction() as tx:
        tx.create_table("s.t", {"i": "int32"}, partition_by=["i"])
    with lake.transaction() as tx:
        tx.append_arrow("s.t", rows)
    with lake.transaction() as tx:
        tx.drop_table("s.t")
    with lake.transaction() as tx:
        tx.create_table("s.u", {"i": "int32"})
    with lake.transaction() as tx:
        tx.drop_schema("s", cascade=True)
    with lake.transaction() as tx:
        tx.create_schema("empty")
    with lake.transaction() as tx:
        tx.drop_schema("empty")


ODD = 'we,ird "q".näme'


def _odd_names(lake: Lake, reference: DuckLakeConnection) -> None:
    with lake.transaction() as tx:
        tx.create_schema(ODD)
    with lake.transaction() as tx:
        tx.create_table(
            (ODD, ODD), {"a b": "int32", 'q"x': "varchar", "Ünïcode, 'x'": "int64"}, partition_by=['"a b"']
        )
    rows = reference.arrow("""SELECT 1::integer "a b", 'x' "q""x", 2::bigint "Ünïcode, 'x'" """)
    with lake.transaction() as tx:
        tx.append_arrow((ODD, ODD), rows)
    with lake.transaction() as tx:
        tx.create_table(("main", "Case-1_x"), {"i": "int32"})
    with lake.transaction() as tx:
        tx.drop_table((ODD, ODD))


_ODD_SQL = '"' + ODD.replace('"', '""') + '"'


def _schema(lake: Lake, _: DuckLakeConnection) -> None:
    with lake.transaction() as tx:
        tx.create_schema("sales")
    with lake.transaction(author="etl", message="second", extra={"run": 1}) as tx:
        tx.create_schema("Other-1")


SCENARIOS = [
    Scenario("nothing but a new catalog", lambda _lake, _reference: None, ()),
    Scenario(
        "create schemas, with commit information",
        _schema,
        (
            "CREATE SCHEMA sales",
            "BEGIN",
            "CALL lake.set_commit_message('etl', 'second', extra_info => '{\"run\": 1}')",
            'CREATE SCHEMA "Other-1"',
            "COMMIT",
        ),
    ),
    Scenario("create a table of every type", _create_every_type, (_EVERY_TYPE_SQL,)),
    *(
        Scenario(
            f"partition by {expression}",
            _partitioned(expression),
            (
                "BEGIN",
                "CREATE TABLE main.p (k varchar, ts timestamp)",
                f"ALTER TABLE main.p SET PARTITIONED BY ({expression})",
                "COMMIT",
                f"INSERT INTO main.p {_PARTITION_ROWS}",
            ),
        )
        for expression in TRANSFORMS
    ),
    Scenario(
        "partition by every transform at once",
        _partitioned(*TRANSFORMS),
        (
            "BEGIN",
            "CREATE TABLE main.p (k varchar, ts timestamp)",
            f"ALTER TABLE main.p SET PARTITIONED BY ({', '.join(TRANSFORMS)})",
            "COMMIT",
            f"INSERT INTO main.p {_PARTITION_ROWS}",
        ),
    ),
    Scenario("first append", _append(_FIRST), _append_sql(_FIRST), ignored_inlined=NAN_AS_BOUND),
    Scenario(
        "further append", _append(_FIRST, _SECOND), _append_sql(_FIRST, _SECOND), ignored_inlined=NAN_AS_BOUND
    ),
    Scenario(
        "append with new extremes, NULL and NaN",
        _append(_SECOND, _EXTREME),
        _append_sql(_SECOND, _EXTREME),
        ignored_inlined=NAN_AS_BOUND,
    ),
    Scenario("append NULLs, then values", _append(_NULLS, _SECOND), _append_sql(_NULLS, _SECOND)),
    Scenario("append values, then NULLs", _append(_SECOND, _NULLS), _append_sql(_SECOND, _NULLS)),
    Scenario(
        "append to two tables in one transaction",
        _two_tables,
        (
            "CREATE TABLE a (i integer)",
            "CREATE TABLE b (i integer)",
            "BEGIN",
            "CALL lake.set_commit_message('me', 'both')",
            "INSERT INTO b FROM range(3)",
            "INSERT INTO a FROM range(2)",
            "INSERT INTO b VALUES (2)",
            "COMMIT",
        ),
    ),
    Scenario(
        "delete from two tables in one transaction, the newer one first",
        _deletes_in_two_tables,
        (
            "CREATE TABLE a (i integer)",
            "INSERT INTO a FROM range(20)",
            "CREATE TABLE b (i integer)",
            "INSERT INTO b FROM range(20)",
            "CALL lake.set_option('data_inlining_row_limit', 0)",
            "BEGIN",
            "DELETE FROM b WHERE i = 3",
            "DELETE FROM a WHERE i = 3",
            "COMMIT",
        ),
    ),
    Scenario(
        "create a schema and a partitioned table in it and fill it, in one transaction",
        _create_and_fill,
        (
            "BEGIN",
            "CREATE SCHEMA s",
            "CREATE TABLE s.t (i integer)",
            "ALTER TABLE s.t SET PARTITIONED BY (i)",
            "INSERT INTO s.t FROM range(2)",
            "COMMIT",
        ),
    ),
    Scenario(
        "drop tables and schemas",
        _drops,
        (
            "CREATE SCHEMA s",
            "BEGIN",
            "CREATE TABLE s.t (i integer)",
            "ALTER TABLE s.t SET PARTITIONED BY (i)",
            "COMMIT",
            "INSERT INTO s.t FROM range(2)",
            "DROP TABLE s.t",
            "CREATE TABLE s.u (i integer)",
            "DROP SCHEMA s CASCADE",
            "CREATE SCHEMA empty",
            "DROP SCHEMA empty",
        ),
    ),
    Scenario(
        "names that need quoting",
        _odd_names,
        (
            f"CREATE SCHEMA {_ODD_SQL}",
            "BEGIN",
            f"""CREATE TABLE {_ODD_SQL}.{_ODD_SQL} ("a b" integer, "q""x" varchar, "Ünïcode, 'x'" bigint)""",
            f'ALTER TABLE {_ODD_SQL}.{_ODD_SQL} SET PARTITIONED BY ("a b")',
            "COMMIT",
            f"INSERT INTO {_ODD_SQL}.{_ODD_SQL} VALUES (1, 'x', 2)",
            'CREATE TABLE main."Case-1_x" (i integer)',
            f"DROP TABLE {_ODD_SQL}.{_ODD_SQL}",
        ),
    ),
]
