"""Tables and sources whose columns have the names of the columns that our own jobs add to rows."""

import re
from dataclasses import fields
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException

from airflow_provider_ducklake.lake import spark as package
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import InvalidInputError, UnsupportedFeatureError
from airflow_provider_ducklake.lake.format.schema import new_columns
from airflow_provider_ducklake.lake.planning.upkeep.compaction import MergeRule
from airflow_provider_ducklake.lake.planning.writing.write import RowOrder
from airflow_provider_ducklake.lake.spark.read import read_changes, read_table
from airflow_provider_ducklake.lake.spark.types.names import MatchNames, ReadNames, refuse_equal_names
from airflow_provider_ducklake.lake.writes.arguments import InsertChoice
from airflow_provider_ducklake.lake.writes.session import LakeSession
from tests.reference.duckdb_lake import open_lake
from tests.spark.inserting import insert, rows_of
from tests.spark.test_row_changes import Twins, delete, update
from tests.spark.test_row_order import compacted


def own_names() -> list[str]:
    """List all names that the package makes columns of, by its source, under the prefixes it begins with."""
    texts = [path.read_text() for folder in package.__path__ for path in Path(folder).rglob("*.py")]
    stems = {field.name for kind in (ReadNames, MatchNames) for field in fields(kind)} - {"prefix"}
    stems |= {
        found for text in texts for found in re.findall(r"\{(?:prefix|free_prefix\([^}]*)\}(\w+)", text)
    }
    whole = {found for text in texts for found in re.findall(r'"(__?ducklake_(?!internal)\w+)"', text)}
    stems |= {"key_0", "key_1", "key_0_3", "gone_2"}
    names = {prefix + stem for prefix in ("_ducklake_", "__DuckLake_") for stem in stems}
    spelled = {"kind", "inserted", "deleted", "_metadata", "value", "bin", "position", "file_id"}
    return sorted({name.lower(): name for name in names | whole | spelled}.values())


NAMES = own_names()
OF_SOURCE = ", ".join(f's."{name}"' for name in NAMES)
LISTED = ", ".join(f'"{name}"' for name in NAMES)
COLUMNS = f"id BIGINT, p VARCHAR, {LISTED.replace(',', ' INT,')} INT"
VALUES = ", ".join(f"(i * 100 + {number})::INT" for number, _ in enumerate(NAMES))


def rows(start: int, stop: int) -> str:
    return f"SELECT i, 'p' || i % 3, {VALUES} FROM range({start}, {stop}) r(i)"


def test_the_names_are_all_found():
    assert {"_ducklake_key_0", "_ducklake_zorder", "_ducklake_bin", "_ducklake_clause"} < set(NAMES)
    assert {"__DuckLake_gone", "_ducklake_nothing", "kind"} < set(NAMES)


def test_rows_are_inserted_partitioned_and_clustered(spark, sqlite_catalog, tmp_path):
    source = tmp_path / "source.parquet"
    with open_lake(sqlite_catalog) as reference:
        reference.sql(f"CREATE TABLE t ({COLUMNS})")
        keys = f'bucket(5, p), bucket(7, id), "{NAMES[0]}", p'
        reference.sql(f"ALTER TABLE t SET PARTITIONED BY ({keys})")
        reference.sql(f"COPY (SELECT * FROM ({rows(0, 9)}) s(id, p, {LISTED})) TO '{source}'")
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        for order in ((), ("id", NAMES[1])):
            insert(lake, spark.read.parquet(str(source)), InsertChoice(zorder_by=order))
        assert lake.verify() == []

    found = rows_of(sqlite_catalog)
    assert found == rows_of(
        sqlite_catalog, f"SELECT * FROM ({rows(0, 9)} UNION ALL {rows(0, 9)}) ORDER BY ALL"
    )


@pytest.mark.parametrize("inlining_limit", [0, 10])
def test_rows_are_merged_by_and_from_such_columns_and_their_changes_are_read(spark, tmp_path, inlining_limit):
    source, key, other = tmp_path / "source.parquet", "_ducklake_row_id", "_ducklake_source_id"
    with Twins(tmp_path, inlining_limit) as twins:
        twins.sql(
            f"CREATE TABLE t ({COLUMNS})", f"INSERT INTO t {rows(0, 8)}", f"INSERT INTO t {rows(8, 20)}"
        )
        twins.theirs.sql(f"COPY (SELECT * FROM ({rows(5, 25)}) s(id, p, {LISTED})) TO '{source}'")
        twins.change_both(
            spark,
            f"MERGE INTO t USING read_parquet('{source}') s ON t.{key} = s.{key} "
            f"WHEN MATCHED AND t.{other} % 200 < 100 "
            f"THEN UPDATE SET {other} = s._ducklake_clause, p = t.p || '+' "
            f"WHEN NOT MATCHED THEN INSERT (id, p, {LISTED}) VALUES (s.id, s.p, {OF_SOURCE})",
            source=str(source),
            on=f"target.{key} = source.{key}",
            when_matched=(
                {
                    "condition": f"target.{other} % 200 < 100",
                    "update": {other: "source._ducklake_clause", "p": "target.p || '+'"},
                },
            ),
            when_not_matched=({"insert": "*"},),
        )
        gone = f"{other} = 700 OR _ducklake_position % 300 < 100"
        twins.change_both(spark, f"DELETE FROM t WHERE {gone}", **delete(gone))
        assert twins.lake.verify() == []
        last = twins.head()
        feed = twins.lake.changes("t", 1, last)
        theirs = f"SELECT * FROM ducklake_table_changes('lake', 'main', 't', 1, {last})"
        found = [tuple(row) for row in read_changes(spark, feed.plan).collect()]
        assert sorted(map(repr, found)) == sorted(map(repr, twins.ours.sql(theirs)))
        read = read_table(spark, twins.lake.scan("t"), row_ids=True, positions=True, prefix="mine_")
        assert read.columns == ["id", "p", *NAMES, "mine_row_id", "mine_file_id", "mine_position"]
        assert sorted(row.mine_row_id for row in read.collect()) == sorted(twins.row_ids().values())


def test_no_condition_or_value_sees_a_column_of_ours(spark, tmp_path):
    source = tmp_path / "source.parquet"
    with Twins(tmp_path, 0) as twins:
        twins.sql("CREATE TABLE t (id BIGINT)", "INSERT INTO t FROM range(3)")
        twins.theirs.sql(f"COPY (SELECT 7 AS id) TO '{source}'")
        merge = {"source": str(source)}
        for changes in (
            delete("_ducklake_position = 0"),
            update("true", id="`_DUCKLAKE_ROW_ID`"),
            {**merge, "on": "target.id = source._ducklake_source_id", "when_matched": ({"delete": True},)},
        ):
            with pytest.raises(InvalidInputError, match=r"(?i)UNRESOLVED_COLUMN.*_ducklake_"):
                twins.change(spark, **changes)


def test_files_are_compacted_in_the_order_of_such_columns(spark, sqlite_catalog):
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as reference:
        reference.sql(f"CREATE TABLE t ({COLUMNS})")
        for start in (0, 10, 20):
            reference.sql(f"INSERT INTO t {rows(start, start + 10)}")
        before = reference.sql("FROM t ORDER BY ALL")
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        compacted(
            spark,
            lake,
            lake.maintenance.plan_merge("t", MergeRule()),
            RowOrder(zorder_by=("_ducklake_bin", "id")),
        )
        assert lake.verify() == []
    assert rows_of(sqlite_catalog) == before


@pytest.mark.parametrize("one", ["é", "\u212a", "ſ", "İ", "ı", "ß", "ǅ", "ﬁ", "Ω", "\u1e9e", "σ"])  # noqa: RUF001
def test_names_that_are_the_same_for_spark_are_refused(spark, one):
    for other in {one.upper(), one.lower(), one.casefold(), one.swapcase(), "k", "s", "i", "ß", "ς"} - {one}:
        try:
            refuse_equal_names(new_columns({one: "int64", other: "int64"}).columns, "t")
            are_equal = False
        except UnsupportedFeatureError:
            are_equal = True
        found = spark.range(1).toDF(other).selectExpr(f"struct(`{other}`) AS s")
        try:
            found.selectExpr(f"s.`{one}`").schema  # noqa: B018 - which Spark Connect makes on demand
            are_equal_for_spark = True
        except AnalysisException:
            are_equal_for_spark = False

        assert are_equal == are_equal_for_spark, (one, other)


def test_a_table_with_such_names_is_refused_before_a_job_and_compacted(spark, sqlite_catalog):
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as reference:
        reference.sql('CREATE TABLE t ("é" INT, "É" INT)')
        for value in (1, 2):
            reference.sql(f"INSERT INTO t VALUES ({value}, 9)")
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        session = LakeSession(spark, lake)
        verbs = (
            lambda: session.read("t"),
            lambda: session.changes("t", 1, 2),
            lambda: session.insert("t", sql="SELECT 1 AS a"),
            lambda: session.update("t", {"é": "3"}, "true"),
            lambda: session.delete("t", "true"),
            lambda: session.merge("t", sql="SELECT 1 AS a", on="true", insert_all=True),
            lambda: session.sql("INSERT INTO t SELECT * FROM t"),
        )
        for verb in verbs:
            with pytest.raises(UnsupportedFeatureError, match="takes the columns 'é' and 'É' for the same"):
                verb()
        session.merge_adjacent_files("t")
        assert not list(Path(lake.data_path).rglob("_ERROR.json")), "a job has begun"

    assert rows_of(sqlite_catalog) == [(1, 9), (2, 9)]
