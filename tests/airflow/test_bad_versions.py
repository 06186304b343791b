"""What is wrong with a catalog's version, or with what only 1.1 has.

Each error, and each finding, names the object, the value and what to do.
"""

import re
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from sqlalchemy import text

from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.lake import errors
from airflow_provider_ducklake.lake.catalog.drafting.ddl import apply_ddl
from airflow_provider_ducklake.lake.catalog.drafting.transaction import LakeTransaction
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.sql.duckdb.ddl import parse_ddl
from tests.interop.old_lakes import writing
from tests.interop.vectors import container, vector
from tests.reference.catalog_dump import dump_catalog
from tests.reference.catalogs import CATALOG_KINDS, CatalogDatabase

ROWS = pa.table({"i": pa.array([1, 2], pa.int32()), "s": ["a", "b"]})
MIGRATE = "DuckLakeMigrateOperator"
SAY = "UPDATE ducklake_metadata SET value = '{}' WHERE key = 'version'"


def run(catalog: CatalogDatabase, *statements: str) -> None:
    quoted = "`key`" if catalog.kind == "mariadb" else "key"
    with writing(catalog) as connection:
        for statement in statements:
            connection.execute(text(re.sub(r"\bkey\b", quoted, statement)))


def make(catalog: CatalogDatabase, version: str) -> None:
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path, version=version) as lake:
        lake.set_option("data_inlining_row_limit", 0)
        with lake.transaction() as tx:
            tx.create_table("t", {"i": "int32", "s": "varchar"})
            tx.append_arrow("t", ROWS)


@contextmanager
def refusal(kind: type[errors.DuckLakeError], *parts: str):
    """Expect an error that says all of that."""
    with pytest.raises(kind) as refused:
        yield
    for part in parts:
        assert part in str(refused.value)


# --- the version itself ---


@dataclass(frozen=True)
class Case:
    """``says`` is the error of opening the lake."""

    name: str
    damage: str
    says: tuple[str, ...]
    of: str = "1.0"
    kind: type[errors.DuckLakeError] = errors.UnsupportedVersionError


def versions(found: str, *what_to_do: str) -> tuple[str, ...]:
    return (f"has DuckLake version '{found}'", "supports 1.0, 1.1", *what_to_do)


MISSING = ("says that it has DuckLake 1.1, and lacks {}", "from a backup", "'1.1-dev1'", MIGRATE)
CASES = [
    Case(
        "older",
        SAY.format("0.4"),
        ("version '0.4'", "supports 1.0, 1.1", "once it is migrated", MIGRATE, "to_migrate=True"),
    ),
    Case("older than all", SAY.format("0.0"), versions("0.0", "0.1 was the first", "backup")),
    Case("newer", SAY.format("1.2"), versions("1.2", "newer client", "up to 1.1", "newer release")),
    Case("two digits", SAY.format("1.10"), versions("1.10", "newer client")),
    Case("newer dev", SAY.format("1.2-dev1"), versions("1.2-dev1", "only the DuckDB that made")),
    Case("older dev", SAY.format("0.4-dev1"), versions("0.4-dev1", "development build")),
    Case("1.1-dev1", SAY.format("1.1-dev1"), versions("1.1-dev1", "no released client", MIGRATE), of="1.1"),
    Case("no version", SAY.format("one"), versions("one", "key 'version'", "backup")),
    Case("a blank", SAY.format("1.0 "), versions("1.0 ", "This is not a DuckLake version")),
    Case(
        "absent",
        "DELETE FROM ducklake_metadata WHERE key = 'version'",
        ("does not say which DuckLake version", "no row with the key 'version'", "backup"),
        kind=errors.CatalogError,
    ),
    Case(
        "two rows",
        "INSERT INTO ducklake_metadata (key, value) VALUES ('version', '1.1')",
        ("the DuckLake versions 1.0, 1.1", "delete the other rows"),
        kind=errors.CatalogError,
    ),
    Case(
        "1.1 by word",
        SAY.format("1.1"),
        (MISSING[0].format("ducklake_"), *MISSING[1:]),
        kind=errors.CatalogError,
    ),
    *(
        Case(
            f"1.1 without {name}",
            f"ALTER TABLE {name.replace('.', ' DROP COLUMN ')}" if "." in name else f"DROP TABLE {name}",
            (MISSING[0].format(name), *MISSING[1:]),
            of="1.1",
            kind=errors.CatalogError,
        )
        for name in (
            "ducklake_schema.parent_schema_id",
            "ducklake_data_file.row_group_count",
            "ducklake_delete_file.row_group_count",
            "ducklake_file_column_stats.min_is_exact",
            "ducklake_table_column_stats.max_is_exact",
            "ducklake_view_column_tag",
        )
    ),
]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every case on SQLite; in CI each of the others gets a quarter of them a day."""
    if "case" not in metafunc.fixturenames:
        return
    chosen = metafunc.config.option
    kinds = [kind for kind in CATALOG_KINDS if chosen.catalog in ("all", kind)]
    cases = [
        (kind, case)
        for kind in kinds
        for place, case in enumerate(CASES)
        if kind == "sqlite" or chosen.size == "full" or place % 4 == (chosen.seed + kinds.index(kind)) % 4
    ]
    metafunc.parametrize(("kind", "case"), cases, ids=[f"{kind}-{case.name}" for kind, case in cases])


def test_a_version_that_is_wrong(new_catalog, connect, kind, case: Case):
    catalog = new_catalog(kind)
    make(catalog, case.of)
    run(catalog, case.damage)
    before = dump_catalog(catalog)
    connect(catalog)

    file = catalog.database if catalog.kind in ("postgres", "mariadb") else catalog.location
    with refusal(case.kind, file, *case.says):
        Lake.connect(catalog.sqlalchemy_url)
    works, message = DuckLakeHook().test_connection()
    assert not works
    assert all(part in message for part in case.says)
    with refusal(case.kind, *case.says):
        DuckLakeHook().get_or_create_lake()
    assert dump_catalog(catalog) == before


@pytest.mark.every_catalog
def test_tables_without_rows_are_no_lake_yet(catalog):
    Lake.create(catalog.sqlalchemy_url, catalog.data_path).close()
    run(catalog, *(f"DELETE FROM ducklake_{one}" for one in ("metadata", "snapshot", "schema")))
    run(catalog, "DELETE FROM ducklake_snapshot_changes")

    with refusal(errors.NotADuckLakeError, "holds no DuckLake catalog", "Lake.create"):
        Lake.connect(catalog.sqlalchemy_url)
    make(catalog, "1.0")

    with Lake.connect(catalog.sqlalchemy_url) as lake:
        assert lake.read_arrow("t").num_rows == 2


@pytest.mark.every_catalog
@pytest.mark.parametrize(
    ("statement", "name"),
    [
        (
            "ALTER TABLE ducklake_table_column_stats ADD COLUMN min_is_exact BOOLEAN",
            "ducklake_table_column_stats.min_is_exact",
        ),
        ("CREATE TABLE ducklake_view_column_tag (view_id BIGINT)", "ducklake_view_column_tag"),
    ],
)
def test_1_0_with_what_only_1_1_has(catalog, statement, name):
    make(catalog, "1.0")
    run(catalog, statement)

    with Lake.connect(catalog.sqlalchemy_url) as lake:
        assert lake.read_arrow("t").num_rows == 2
        (found,) = lake.verify()

    assert (found.code.value, found.objects) == ("columns-too-new", {"name": name})
    assert name in found.sentence
    assert "1.0" in found.sentence
    assert found.remedy


# --- what only 1.1 has ---


@pytest.fixture
def nested(sqlite_catalog) -> CatalogDatabase:
    make(sqlite_catalog, "1.1")
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake, lake.transaction() as tx:
        tx.create_schema("a")
        tx.create_schema("a.b")
        tx.create_table("a.b.u", {"i": "int32"})
    return sqlite_catalog


def test_schemas_in_a_circle(nested):
    run(
        nested,
        "UPDATE ducklake_schema SET parent_schema_id = (SELECT schema_id FROM ducklake_schema "
        "WHERE schema_name = 'b') WHERE schema_name = 'a'",
    )
    said = ('Schema "', "(id ", "lies in itself", "parent_schema_id", "Correct it", "backup")

    with Lake.connect(nested.sqlalchemy_url) as lake:
        assert "schema-circle" in {one.code.value for one in lake.verify()}
        for act in (lake.tables, lambda: lake.read_arrow("a.b.u"), lambda: writes(lake)):
            with refusal(errors.CatalogError, *said):
                act()


def writes(lake: Lake) -> None:
    with lake.transaction() as tx:
        tx.create_schema("a.c")


def test_a_parent_that_is_nowhere(nested):
    run(nested, "UPDATE ducklake_schema SET parent_schema_id = 99 WHERE schema_name = 'b'")

    with Lake.connect(nested.sqlalchemy_url) as lake:
        assert [str(name) for name in lake.tables()] == ["main.t"]
        found = next(one for one in lake.verify() if one.code.value == "schema-missing")
        with refusal(errors.DuckLakeError, "a.b"):
            lake.read_arrow("a.b.u")

    for part in ("Schema b", "lies in schema 99", "does not exist"):
        assert part in found.sentence
    assert found.remedy


def deleted(catalog: CatalogDatabase, content: bytes) -> None:
    """Delete a row of `t` by a container, then put something else there."""
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        lake.set_option("write_deletion_vectors", "true")
        with lake.transaction() as tx:
            tx.delete_rows("t", "i = 1")
    (row,) = dump_catalog(catalog)["ducklake_delete_file"]
    (file,) = Path(catalog.data_path).rglob(Path(row["path"]).name)
    file.write_bytes(content)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (container(("3", vector(0)), (None, vector(1))), "only some of its vectors say by which snapshot"),
        (container(("3", vector(0)))[:-3], "its footer is not where it should be"),
        (vector(0)[:-1] + b"\0", "truncated or has a wrong checksum"),
        (container(("x", vector(0))), "a vector has the snapshot 'x'"),
    ],
    ids=["mixed", "truncated", "wrong CRC", "no snapshot"],
)
def test_a_container_that_is_damaged(sqlite_catalog, content, problem):
    make(sqlite_catalog, "1.1")
    deleted(sqlite_catalog, content)

    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        with refusal(errors.StorageError, ".puffin is damaged", problem, "Restore the file", "lake.verify()"):
            lake.read_arrow("t")
        found = next(one for one in lake.verify() if one.code.value == "file-unreadable")

    assert problem in found.sentence
    assert "Restore the file" in found.remedy


def test_a_container_whose_vectors_are_unsorted_is_read(sqlite_catalog):
    make(sqlite_catalog, "1.1")
    deleted(sqlite_catalog, container(("9", vector(0, 1)), ("2", vector(0))))

    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        assert lake.read_arrow("t").num_rows == 1


def test_flags_without_their_bounds(sqlite_catalog):
    make(sqlite_catalog, "1.1")
    run(sqlite_catalog, "UPDATE ducklake_file_column_stats SET max_value = NULL, max_is_exact = 1")

    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        found = [one for one in lake.verify() if one.code.value == "exact-without-bound"]
        lake.repair(found)
        assert "exact-without-bound" not in {one.code.value for one in lake.verify()}

    assert len(found) == 2
    assert "ducklake_file_column_stats of column 1 of main.t in data file 0" in found[0].sentence
    assert "lake.repair" in found[0].remedy


@pytest.mark.parametrize(
    ("column", "bound", "is_exact", "answer"),
    [
        (1, "min_value = '0'", 1, (0, 2)),
        (1, "max_value = '9'", 1, (1, 9)),
        (2, "min_value = 'A'", 1, ("A", "b")),
        (2, "min_value = 'A'", 0, None),
        (1, "max_value = '9'", None, (1, 9)),
    ],
)
def test_flags_that_call_a_bound_exact_that_is_none(sqlite_catalog, column, bound, is_exact, answer):
    """A wider bound loses no row, but its flag makes an answer of it; of numbers every client takes it so."""
    make(sqlite_catalog, "1.1")
    end = bound[:3]
    flag = "NULL" if is_exact is None else is_exact
    of_column = f"WHERE column_id = {column}"
    run(
        sqlite_catalog,
        f"UPDATE ducklake_file_column_stats SET {bound}, {end}_is_exact = {flag} {of_column}",
        f"UPDATE ducklake_table_column_stats SET {bound}, {end}_is_exact = {flag} {of_column}",
    )
    name = "is"[column - 1]

    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        said = lake.column_bounds("t", name)
        assert (said and (said.min.as_py(), said.max.as_py())) == answer
        found = lake.verify()
        if is_exact:
            (one,) = found
            assert one.code.value == "file-stats-inexact"
            for part in ("Data file 0 of main.t", f"in column {column}", repr(bound[-2]), "is a value"):
                assert part in one.sentence
            assert "lake.repair" in one.remedy
            lake.repair(found)
            said = lake.column_bounds("t", name)
            assert said is None or (said.min.as_py(), said.max.as_py()) == (
                (1, 2) if name == "i" else ("a", "b")
            )
        assert lake.verify() == []


def test_bounds_that_only_the_flags_call_exact_are_no_answer(sqlite_catalog):
    """A string that may have been cut is not the greatest value, whatever its flag says."""
    make(sqlite_catalog, "1.1")
    cut = f"max_value = '{'b' * 256}', max_is_exact = 1"
    run(sqlite_catalog, f"UPDATE ducklake_file_column_stats SET {cut} WHERE column_id = 2")

    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        assert lake.column_bounds("t", "s") is None
        assert lake.read_arrow("t", filter="s = 'b'").num_rows == 1


@pytest.mark.parametrize("value", ["x", "1.5", "", "99999999999999999999"])
def test_an_epoch_day_that_is_no_integer(sqlite_catalog, value):
    with Lake.create(sqlite_catalog.sqlalchemy_url, sqlite_catalog.data_path, version="1.1") as lake:
        lake.set_option("data_inlining_row_limit", 0)
        with lake.transaction() as tx:
            tx.create_table("t", {"z": "timestamp"}, partition_by=["epoch_day(z)"])
            tx.append_arrow("t", pa.table({"z": pa.array([86_400_000_000], pa.timestamp("us"))}))
        run(sqlite_catalog, f"UPDATE ducklake_file_partition_value SET partition_value = '{value}'")

        assert lake.read_arrow("t", filter="z >= TIMESTAMP '1970-01-02 00:00:00'").num_rows == 1
        (found,) = lake.verify()

    assert found.code.value == "partition-value-differs"
    assert repr(value) in found.sentence
    assert "main.t" in found.sentence
    assert found.remedy


FEATURES: dict[str, Callable[[Lake], object]] = {
    "nested schemas": lambda lake: change(lake, lambda tx: tx.create_schema("main.a")),
    **{
        f"the epoch_{unit} partition transform": lambda lake, unit=unit: ddl(
            lake, f"ALTER TABLE t SET PARTITIONED BY (epoch_{unit}(z))"
        )
        for unit in ("year", "month", "day", "hour")
    },
    "COMMENT ON COLUMN for views": lambda lake: ddl(lake, "COMMENT ON COLUMN v.i IS 'x'"),
    "the NULL type": lambda lake: change(lake, lambda tx: tx.add_column("t", "n", "null")),
    "the type timestamptz_ns": lambda lake: ddl(lake, "ALTER TABLE t ADD COLUMN n TIMESTAMPTZ_NS"),
}


def change(lake: Lake, act: Callable[[LakeTransaction], object]) -> None:
    with lake.transaction() as tx:
        act(tx)


def ddl(lake: Lake, statements: str) -> None:
    with lake.transaction() as tx:
        apply_ddl(tx, parse_ddl(statements))


@pytest.mark.parametrize("feature", FEATURES)
def test_a_lake_of_1_0_is_asked_for_what_only_1_1_has(sqlite_catalog, feature):
    make(sqlite_catalog, "1.0")
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        ddl(lake, "CREATE VIEW v AS SELECT i FROM t; ALTER TABLE t ADD COLUMN z TIMESTAMP")
        before = dump_catalog(sqlite_catalog)

        said = (
            f"DuckLake 1.0 does not support {feature}.",
            "Nothing was changed.",
            f"{MIGRATE}(to_version='1.1')",
            "DuckDB 2.0 and newer open it, and no DuckDB 1.x",
        )
        with refusal(errors.UnsupportedFeatureError, *said):
            FEATURES[feature](lake)

        assert dump_catalog(sqlite_catalog) == before
