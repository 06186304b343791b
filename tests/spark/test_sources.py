"""Where rows come from: files read as the table's types, queries, functions, and what is missing."""

import re
import sqlite3
from datetime import date
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from airflow_provider_ducklake.lake import errors
from airflow_provider_ducklake.lake.format.schema import new_columns
from airflow_provider_ducklake.lake.spark import text_parts, text_sources
from airflow_provider_ducklake.lake.spark.job.errors import typed
from airflow_provider_ducklake.lake.spark.job.request import source_of
from airflow_provider_ducklake.lake.spark.jobs.insert import insert
from airflow_provider_ducklake.lake.spark.sessions.kind import is_remote, kind_of
from airflow_provider_ducklake.lake.spark.sources import load
from tests.spark.submission import make_request

TYPED = new_columns(
    {
        "id": "int64",
        "price": "decimal(9,2)",
        "day": "date",
        "at": "timestamp",
        "code": "varchar",
        "key": "uuid",
        "small": "uint8",
    }
)
CSV = (
    "CODE,id,price,day,at,key,small\n"
    "007,1,1.50,2024-01-02,2024-01-02 03:04:05,00000000-0000-0000-0000-000000000001,255\n"
    ",2,,,,,\n"
)


def file(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def test_a_csv_is_read_as_the_tables_types_by_header_name(spark, tmp_path, new_plan):
    source = source_of(file(tmp_path, "in.csv", CSV))

    (result,) = insert(spark, make_request(new_plan(TYPED), source))

    assert result.rows_written == 2
    (data_file,) = result.data_files
    bounds = {column.name: data_file.column_stats[column.id].min_value for column in TYPED.columns}
    assert bounds == {
        "id": "1",
        "price": "1.50",
        "day": "2024-01-02",
        "at": "2024-01-02 03:04:05",
        "code": "007",
        "key": "00000000-0000-0000-0000-000000000001",
        "small": "255",
    }


def test_a_csv_with_other_columns_lists_them(spark, tmp_path, new_plan):
    source = source_of(file(tmp_path, "in.csv", "id,other\n1,2\n"))

    with pytest.raises(errors.SchemaMismatchError, match="column other is not in the table"):
        insert(spark, make_request(new_plan(new_columns({"id": "int64"})), source))


def test_a_csv_value_that_is_none_of_the_columns_fails_and_is_not_nulled(spark, tmp_path, new_plan):
    source = source_of(file(tmp_path, "in.csv", "id\n1\nNA\n"))
    plan = new_plan(new_columns({"id": "int64"}))

    with pytest.raises(Exception, match="line 3: column id has 'NA', which is not a valid int64") as caught:
        insert(spark, make_request(plan, source))
    assert isinstance(typed(caught.value), errors.DuckLakeError)

    named = source_of({"path": source.dataset.path, "options": {"nullValue": "NA"}})
    (result,) = insert(spark, make_request(new_plan(plan.schema), named))
    assert result.rows_written == 2


def test_csv_files_with_columns_in_another_order_are_read_by_name(spark, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    file(folder, "1.csv", "a,b\n1,2\n")
    file(folder, "2.csv", "B,A\n4,3\n")
    source = source_of({"path": str(folder), "format": "csv"})

    rows = load(spark, source, new_columns({"a": "int64", "b": "int64"})).collect()

    assert sorted(map(tuple, rows)) == [(1, 2), (3, 4)]


@pytest.mark.parametrize("other", ["a\n3\n", "a,b,c\n3,4,5\n"])
def test_csv_files_with_other_columns_are_refused_unless_they_are_merged(spark, tmp_path, other):
    folder = tmp_path / "in"
    folder.mkdir()
    file(folder, "1.csv", "a,b\n1,2\n")
    file(folder, "2.csv", other)
    source = source_of({"path": str(folder), "format": "csv"})

    with pytest.raises(
        errors.InvalidInputError, match=r"2\.csv has 'a'.* in its header where .*1\.csv has 'a', 'b'"
    ):
        load(spark, source, None)

    merged = source_of({"path": str(folder), "format": "csv", "options": {"mergeSchema": True}})
    rows = load(spark, merged, None).collect()
    assert {row["b"] for row in rows} == {"2", None if "c" not in rows[0] else "4"}


def test_a_merge_reads_a_csv_by_the_tables_types_and_other_columns_as_texts(spark, tmp_path):
    source = source_of(file(tmp_path, "in.csv", "id,operation\n007,d\n"))

    rows = load(spark, source, new_columns({"id": "int64", "price": "int64"}), fills=False)

    assert rows.collect() == [(7, "d")]


def test_a_large_csv_is_read_in_parts_that_begin_with_records(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(text_parts, "_PART_BYTES", 50)
    texts = [f'line {number}\n"{"x" * (number % 40)}", end' for number in range(100)]
    lines = [
        "id,note",
        *(f'{number},"{text.replace(chr(34), chr(34) * 2)}"' for number, text in enumerate(texts)),
    ]
    source = source_of(file(tmp_path, "in.csv", "\n".join(lines)))

    df = load(spark, source, new_columns({"id": "int64", "note": "varchar"}))

    assert sorted(map(tuple, df.collect())) == list(enumerate(texts))
    assert df.rdd.getNumPartitions() > 10 if not is_remote(spark) else True


def test_a_record_of_a_large_csv_that_is_bad_is_named_by_its_line(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(text_parts, "_PART_BYTES", 50)
    lines = ["id", *map(str, range(100)), "x", *map(str, range(100))]
    source = source_of(file(tmp_path, "in.csv", "\n".join(lines)))

    with pytest.raises(Exception, match="line 102: column id has 'x'"):
        load(spark, source, new_columns({"id": "int64"})).collect()


def test_a_quote_that_is_no_end_of_a_field_never_moves_the_parts_of_a_large_csv(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(text_parts, "_PART_BYTES", 50)
    lines = ["id,note", *(f'{number},"a{number}\n""b"""' for number in range(20)), '20,5" pipe', '21,"c\nd"']
    path = file(tmp_path, "in.csv", "\n".join([*lines, *(f'{number},"e\nf"' for number in range(22, 60))]))
    columns = new_columns({"id": "int64", "note": "varchar"})

    whole = load(spark, source_of({"path": path, "options": {"multiLine": True}}), columns).collect()

    assert len(whole) == 60
    with pytest.raises(Exception, match=r"cannot be read: .*in\.csv, line "):
        load(spark, source_of(path), columns).collect()


def test_the_rows_of_a_large_csv_are_not_broadcast(spark, tmp_path):
    path = file(tmp_path, "in.csv", "id\n" + "\n".join(map(str, range(20_000))))
    others = spark.range(20_000).selectExpr("CAST(id AS STRING) AS id")
    before = spark.conf.get("spark.sql.autoBroadcastJoinThreshold")
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "50000")
    try:
        plan = kind_of(spark).explained(load(spark, source_of(path), None).join(others, "id"))
    finally:
        spark.conf.set("spark.sql.autoBroadcastJoinThreshold", before)

    assert "SortMergeJoin" in plan


def test_an_option_that_is_not_read_is_refused_by_its_name(spark, tmp_path):
    path = file(tmp_path, "in.csv", "a\n1\n")
    for name, value in (("mode", "DROPMALFORMED"), ("comment", "#"), ("seperator", ";"), ("lineSep", ";")):
        with pytest.raises(
            errors.InvalidInputError, match=f"source: the option {name} = '{value}' is not among"
        ):
            load(spark, source_of({"path": path, "options": {name: value}}), None)


def test_a_table_made_of_texts_alone_is_warned_of(spark, tmp_path, caplog):
    path = file(tmp_path, "in.csv", "a,b\n1,2\n")

    load(spark, source_of({"path": path, "options": {"inferSchema": True}}), None)
    load(spark, source_of(path), None)

    (record,) = [one for one in caplog.records if one.name == text_sources.__name__]
    assert "All 2 columns of" in record.getMessage()
    assert "inferSchema" in record.getMessage()


def test_infer_schema_finds_the_types_that_all_values_have(spark, tmp_path):
    rows = ["a,b,c,d,e,f,g", "1,1,true,2024-01-02,2024-01-02 03:04:05,x,", "2,1.5,false,,,,"]
    source = source_of({"path": file(tmp_path, "in.csv", "\n".join(rows)), "options": {"inferSchema": True}})

    types = [field.dataType.simpleString() for field in load(spark, source, None).schema]

    assert types == ["bigint", "double", "boolean", "date", "timestamp_ntz", "string", "string"]


@pytest.mark.parametrize(
    ("first", "second", "type_"),
    [
        ("00501", "10001", "string"),
        ("+41791234567", "1", "string"),
        ("007", "1.5", "string"),
        ("-07", "0", "string"),
        ("00.2", "0.10", "string"),
        ("+5.0", "1", "string"),
        ("12345678901234567890", "1.5", "string"),
        ("0", "-0.5", "double"),
        ("0", "-10", "bigint"),
        ("1e03", "0e0", "double"),
    ],
)
def test_infer_schema_takes_no_code_for_a_number(spark, tmp_path, first, second, type_):
    path = file(tmp_path, "in.csv", f"a,b\n{first},x\n{second},x\n")

    rows = load(spark, source_of({"path": path, "options": {"inferSchema": True}}), None)

    assert rows.schema[0].dataType.simpleString() == type_
    if type_ == "string":
        assert [row.a for row in rows.collect()] == [first, second]


def test_orc_of_others_is_refused_where_spark_reads_other_values(spark, tmp_path):
    days = pa.array([date(1500, 1, 1), date(2024, 1, 1)])
    nanos = pa.array([1_700_000_000_123_456_789, 1], pa.timestamp("ns"))
    for name, columns in {
        "old": {"d": days},
        "new": {"d": days[1:]},
        "struct": {"s": pa.array([{"d": one.as_py()} for one in days])},
        "list": {"l": pa.array([[one.as_py()] for one in days])},
        "nanos": {"n": nanos},
    }.items():
        orc.write_table(pa.table(columns), str(tmp_path / f"{name}.orc"))
    spark.sql("SELECT DATE'1500-01-01' AS d, TIMESTAMP'2024-01-01' AS n").write.orc(f"{tmp_path}/spark.orc")

    def rows(name, **options):
        return load(spark, source_of({"path": f"{tmp_path}/{name}.orc", "options": options}), None)

    for name in ("old", "struct"):
        with pytest.raises(Exception, match="has a date before 1582-10-15"):
            rows(name).collect()
    with pytest.raises(errors.InvalidInputError, match="dates or timestamps in lists"):
        rows("list")
    with pytest.raises(
        errors.InvalidInputError, match=r"nanos\.orc has timestamps \(`n`\).*truncateNanoseconds"
    ):
        rows("nanos")
    assert rows("new").collect() == [(date(2024, 1, 1),)]
    assert rows("nanos", truncateNanoseconds=True).count() == 2
    assert rows("spark").collect()[0].d == date(1500, 1, 1)


def test_the_users_own_schema_counts(spark, tmp_path):
    path = file(tmp_path, "in.csv", "1;x\n")
    source = source_of({"path": path, "options": {"schema": "a int, b string", "sep": ";", "header": False}})

    assert load(spark, source, new_columns({"q": "int64"})).collect() == [(1, "x")]


def test_json_is_read_as_the_tables_types_and_absent_keys_are_null(spark, tmp_path, new_plan):
    text = '{"id": 1, "at": "2024-01-02T03:04:05", "tags": ["a"]}\n{"id": 2}\n'
    schema = new_columns({"ID": "int32", "at": "timestamp", "tags": "varchar[]", "never": "int64"})

    (result,) = insert(spark, make_request(new_plan(schema), source_of(file(tmp_path, "in.json", text))))

    (data_file,) = result.data_files
    assert data_file.column_stats[schema.find("at").id].min_value == "2024-01-02 03:04:05"
    assert data_file.column_stats[schema.find("never").id].null_count == 2


@pytest.mark.parametrize(
    "text",
    [
        '{\n"id": 1\n}\n{"id":\n2}',
        '[{"id": 1},\n{"id": 2}]',
        '{"id":1}{"id":2}',
        '{"id":1}\n{\n"id":2}',
        '{"o": {}\n, "id":1}\n{"id": 2}',
    ],
)
def test_records_of_json_are_read_however_they_are_laid_out(spark, tmp_path, text):
    rows = load(spark, source_of(file(tmp_path, "in.json", text)), None).collect()

    assert sorted(row["id"] for row in rows) == [1, 2]


def test_text_behind_an_array_is_refused_whatever_columns_are_chosen(spark, tmp_path):
    path = file(tmp_path, "in.json", '[{"id":1}],"others":[{"id":2}]')

    for options in ({}, {"schema": "id BIGINT"}):
        with pytest.raises(Exception, match=r"in\.json, line 1: ',.* is no record of JSON"):
            load(spark, source_of({"path": path, "options": options}), None).collect()


@pytest.mark.parametrize("name", ["_a.parquet", ".a.parquet", "_a.csv", "sub/_a.json"])
def test_a_path_with_hidden_files_alone_is_named_with_what_spark_leaves_out(spark, tmp_path, name):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(pa.table({"id": [1]}), path)
    else:
        path.write_text('id\n{"id":1}\n')

    for given in (path, path.parent):
        source = {"path": str(given), "format": path.suffix[1:]}
        with pytest.raises(
            errors.InvalidInputError, match=rf"no file at {re.escape(str(given))} but .* begin with _"
        ):
            load(spark, source_of(source), None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a;b\n1;2\n", r"'a;b', is one column, .* Set the option sep to ';'"),
        ("a\tb\n1\t2\n", r"Set the option sep to '\\t'"),
        ("a" * 100_000 + "\n1\n", "a name of 100000 characters in its header"),
    ],
)
def test_a_header_that_is_no_list_of_names_is_refused_for_a_new_table(spark, tmp_path, text, words):
    path = file(tmp_path, "in.csv", text)

    with pytest.raises(errors.InvalidInputError, match=words):
        load(spark, source_of(path), None)
    if len(text) < 100:
        named = load(spark, source_of({"path": path, "options": {"sep": ","}}), None)
        assert len(named.columns) == 1


@pytest.mark.parametrize("suffix", ["csv", "json", "parquet", "orc"])
@pytest.mark.parametrize("kind", ["a file", "a folder", "a folder of a partition"])
def test_a_source_has_no_file_that_links_lead_away_to(spark, tmp_path, suffix, kind):
    inside, outside = tmp_path / "in", tmp_path / "out"
    for folder in (inside, outside):
        spark.range(1).coalesce(1).write.format(suffix).options(header=True).save(str(folder))
    (secret,) = outside.glob(f"part-*.{suffix}")
    link = inside / {"a file": f"z.{suffix}", "a folder": "z", "a folder of a partition": "p=1"}[kind]
    link.symlink_to(secret if kind == "a file" else outside)
    if kind == "a folder of a partition":
        next(inside.glob(f"part-*.{suffix}")).unlink()
    options = {"recursiveFileLookup": True} if kind == "a folder" else {}
    source = {"path": str(inside), "format": suffix, "options": options}

    with pytest.raises(
        errors.InvalidInputError, match=rf"is a link, or below one, that leads out of {inside}/\."
    ):
        load(spark, source_of(source), None)
    patterns = (f"{inside}/*", f"{tmp_path}/i?", f"{tmp_path}/{{in,x}}", f"{tmp_path}/*/")
    for path in patterns if kind == "a file" else patterns[:1]:
        with pytest.raises(errors.InvalidInputError, match="leads out of"):
            load(spark, source_of(source | {"path": path}), None)
    link.unlink()
    named = tmp_path / f"named.{suffix}"
    named.symlink_to(secret)
    for path in (named, outside):
        (row,) = load(spark, source_of({"path": str(path), "format": suffix}), None).collect()
        assert int(row["id"]) == 0


@pytest.mark.parametrize("suffix", ["csv", "parquet", "orc"])
@pytest.mark.parametrize("folder", ["a%20b", "k=v%2Fw", "a b", "ä", "p%"])
def test_folders_of_any_name_are_no_links(spark, tmp_path, suffix, folder):
    spark.range(1).coalesce(1).write.format(suffix).options(header=True).save(f"{tmp_path}/{folder}")

    for path in (f"{tmp_path}/{folder}", f"{tmp_path}/{folder[:1]}*"):
        (row,) = load(spark, source_of({"path": path, "format": suffix}), None).collect()
        assert int(row["id"]) == 0


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_values_of_folders_are_those_below_the_path(spark, tmp_path, suffix):
    path = tmp_path / "region=EU" / "in"
    for region in ("US", "CH"):
        rows = spark.range(1).coalesce(1).write.format(suffix).options(header=True)
        rows.save(str(path / f"region={region}"))

    rows = load(spark, source_of({"path": str(path), "format": suffix}), None).collect()

    assert sorted(row["region"] for row in rows) == ["CH", "US"]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_pattern_names_no_folder_through_a_link(spark, tmp_path, suffix):
    spark.range(1).coalesce(1).write.format(suffix).options(header=True).save(str(tmp_path / "other"))
    (tmp_path / "l1").symlink_to(tmp_path / "other")
    for path in ("l?", "l1*", "l{1,9}", f"l?/*.{suffix}", f"*1/p*.{suffix}"):
        with pytest.raises(errors.InvalidInputError, match="leads out of"):
            load(spark, source_of({"path": f"{tmp_path}/{path}", "format": suffix}), None)


@pytest.mark.parametrize("folders", [("k=a=b", "k=x"), ("k=a?b", "k=x"), ("k=1", "K=2"), ("k=%FF", "k=x")])
def test_values_of_folders_are_those_that_spark_lists_in_every_format(spark, tmp_path, folders):
    read = {}
    for suffix in ("csv", "json", "parquet"):
        for number, folder in enumerate(folders):
            rows = spark.range(number, number + 1).coalesce(1).write.format(suffix).options(header=True)
            rows.save(f"{tmp_path}/{suffix}/{folder}")
        source = {"path": f"{tmp_path}/{suffix}//", "format": suffix}
        found = load(spark, source_of(source), None)
        (name,) = set(found.columns) - {"id"}
        read[suffix] = sorted((int(row["id"]), str(row[name])) for row in found.collect())

    assert read["csv"] == read["json"] == read["parquet"]
    assert "None" not in dict(read["csv"]).values()


@pytest.mark.parametrize("head", ["\n" * 2**20 + "a,b\n1,2\n", f"{'a' * 9_000},b" * 120 + "\n1\n"])
def test_a_header_is_found_or_the_file_is_refused(spark, tmp_path, head):
    file(tmp_path, "1.csv", "a,b\n1,2\n")
    file(tmp_path, "2.csv", head)

    with pytest.raises(
        errors.InvalidInputError, match=r"2\.csv: its first 1048576 bytes hold no whole record"
    ):
        load(spark, source_of({"path": str(tmp_path), "format": "csv"}), None)


def test_a_store_that_does_not_answer_is_no_bad_file():
    with pytest.raises(errors.StorageError), text_parts.named("source", "s3://bucket/a.csv"):
        raise OSError("connection reset")
    with pytest.raises(errors.InvalidInputError, match="is damaged"), text_parts.named("source", "/a.csv.gz"):
        raise OSError("zlib inflate failed")


def test_variants_maps_and_json_of_any_value_come_from_json(spark, tmp_path):
    path = file(tmp_path, "in.json", '{"v":{"a":[1.50]},"m":{"x":1},"j":"s"}\n{"v":"t","m":{},"j":[1, 2]}\n')
    schema = new_columns({"v": "variant", "m": "map(varchar, int64)", "j": "json"})

    rows = load(spark, source_of(path), schema).selectExpr("to_json(v) AS v", "m", "j").collect()

    assert sorted(map(tuple, rows)) == [('"t"', {}, "[1,2]"), ('{"a":[1.5]}', {"x": 1}, '"s"')]


@pytest.mark.parametrize("format_", ["parquet", "orc"])
def test_columnar_files_keep_their_types(spark, tmp_path, format_):
    path = str(tmp_path / f"in.{format_}")
    spark.sql("select 1 a, 'x' b").write.format(format_).save(path)

    assert load(spark, source_of(path), None).collect() == [(1, "x")]


def test_sql_sees_the_datasets_as_views(spark, tmp_path):
    one = file(tmp_path, "one.csv", "a\n1\n2\n")
    two = file(tmp_path, "two.json", '{"a": 2, "b": "x"}\n')
    source = source_of(
        sql="select t.b from o join `two files` t on o.a = t.a",
        sources={"o": {"path": one, "options": {"inferSchema": True}}, "two files": two},
    )

    assert load(spark, source, None).collect() == [("x",)]


def test_a_view_of_a_dataset_may_have_any_name(spark, tmp_path):
    one = {"path": file(tmp_path, "one.csv", "a\n1\n"), "options": {"inferSchema": True}}
    source = source_of(sql="select a from `back``tick.x`", sources={"back`tick.x": one})

    assert load(spark, source, None).collect() == [(1,)]


def test_a_transform_is_called_with_the_datasets(spark, tmp_path, monkeypatch):
    file(tmp_path, "my_rows.py", "def f(spark, sources):\n    return sources['o'].selectExpr('a + 1 as a')\n")
    monkeypatch.syspath_prepend(tmp_path)
    one = {"path": file(tmp_path, "one.csv", "a\n1\n"), "options": {"inferSchema": True}}

    df = load(spark, source_of(transform="my_rows:f", sources={"o": one}), None)

    assert df.collect() == [(2,)]


@pytest.mark.classic_only("a server says itself that it has no file system")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"source": "s3://landing/in.csv"}, r'packages="org.apache.hadoop:hadoop-aws:3\.\d\.\d"'),
        ({"source": "abfss://c@a.dfs.core.windows.net/x"}, "hadoop-azure:3"),
        ({"sql": "select * from nothing"}, "sql reads nothing, which is none of its sources"),
        ({"sql": "select from"}, "sql failed"),
        ({"transform": "no_such_module:f"}, "no_such_module"),
        ({"transform": "json:no_function"}, "no_function"),
        ({"transform": "builtins:print"}, "print"),
    ],
)
def test_what_is_not_there_is_named(spark, new_plan, arguments, message):
    plan = new_plan(new_columns({"a": "int64"}))

    with pytest.raises(errors.InvalidInputError, match=message):
        insert(spark, make_request(plan, source_of(**arguments)))

    assert not Path(plan.directory).exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"source": "/nowhere/in.csv"}, "source: /nowhere/in.csv does not exist"),
        ({"source": "/nowhere/*.parquet"}, r"source: /nowhere/\*.parquet does not exist"),
        ({"sql": "select 1", "sources": {"o": "/nowhere/o"}}, r"sources\['o'\]: /nowhere/o does not exist"),
    ],
)
def test_a_source_that_is_not_there_may_come(spark, new_plan, arguments, message):
    plan = new_plan(new_columns({"a": "int64"}))

    with pytest.raises(errors.SourceNotFoundError, match=message):
        insert(spark, make_request(plan, source_of(**arguments)))


def test_a_jdbc_password_comes_from_the_environment_or_not_at_all(spark, tmp_path):
    sqlite3.connect(tmp_path / "a.db").close()
    options = {"url": f"jdbc:sqlite:{tmp_path}/a.db", "dbtable": "t"}
    source = source_of({"format": "jdbc", "options": options, "password_env": "NO_SUCH_VARIABLE"})

    with pytest.raises(errors.SparkJobError, match="no variable NO_SUCH_VARIABLE"):
        load(spark, source, None)


@pytest.mark.parametrize("keys", [(), ("a",)])
def test_no_rows_make_no_file_but_a_schema(spark, new_plan, keys):
    plan = new_plan(None, keys)

    (result,) = insert(spark, make_request(plan, source_of(sql="select id a from range(0)")))

    assert (result.rows_written, result.data_files) == (0, ())
    assert [str(column.type) for column in result.schema.columns] == ["int64"]
    assert not list(Path(plan.directory).rglob("*.parquet"))


def test_values_of_rows_do_not_choose_the_class_of_an_error(spark, new_plan):
    schema = new_columns({"a": "int32"})
    for class_ in ("ZombieCommitError", "InvalidInputError"):
        text = f"<<{class_}|it is all done>>"
        for query in (f"SELECT CAST('{text}' AS INT) AS a", f"SELECT raise_error('{text}') AS a"):
            with pytest.raises(Exception, match="it is all done") as caught:
                insert(spark, make_request(new_plan(schema), source_of(sql=query)))
            assert type(typed(caught.value)) is errors.SparkJobError, query

    values = f"SELECT '{text}' AS a"
    with pytest.raises(errors.SchemaMismatchError):
        insert(spark, make_request(new_plan(schema), source_of(sql=values)))


_DIFFERING = {
    "int8 and int32": (pa.array([5], pa.int8()), pa.array([300], pa.int32())),
    "no value and int32": (pa.array([None], pa.int8()), pa.array([300], pa.int32())),
    "int8 and uint8": (pa.array([5], pa.int8()), pa.array([200], pa.uint8())),
    "double and uint32": (pa.array([0.5]), pa.array([2**32 - 1], pa.uint32())),
    "in a list": (pa.array([[5]], pa.list_(pa.int8())), pa.array([[300]], pa.list_(pa.int32()))),
    "in a struct": (
        pa.array([{"x": 5}], pa.struct({"x": pa.int8()})),
        pa.array([{"x": 300}], pa.struct({"x": pa.int32()})),
    ),
    "a field more": (pa.array([{"x": 5}]), pa.array([{"x": 6, "y": "b"}])),
    "date and int32": (pa.array([date(2024, 1, 5)]), pa.array([7], pa.int32())),
    "int64 and date": (pa.array([7]), pa.array([date(2024, 1, 5)])),
    "int64 and timestamp": (pa.array([7]), pa.array([7], pa.timestamp("ms"))),
    "blob and decimal": (pa.array([b"a"]), pa.array([Decimal("1.25")], pa.decimal128(9, 2))),
}


_REFUSED = ("date and int32", "int64 and date", "int64 and timestamp", "blob and decimal")


@pytest.mark.parametrize("kind", _DIFFERING)
def test_files_of_differing_types_have_the_values_that_duckdb_reads_or_are_refused(spark, tmp_path, kind):
    first, second = _DIFFERING[kind]
    for name, values in (("a", first), ("b", second)):
        pq.write_table(pa.table({"v": values}), tmp_path / f"{name}.parquet")
    if kind in _REFUSED:
        with pytest.raises(errors.InvalidInputError, match="types differ"):
            load(spark, source_of({"path": str(tmp_path)}), None)
        return

    rows = load(spark, source_of({"path": str(tmp_path)}), None).collect()

    found = sorted(str(row.asDict(recursive=True)["v"]) for row in rows)
    query = f"SELECT v FROM read_parquet('{tmp_path}/*.parquet', union_by_name = true)"
    assert found == sorted(str(value) for (value,) in duckdb.sql(query).fetchall())


@pytest.mark.parametrize("suffix", ["parquet", "orc"])
def test_no_row_is_left_out_by_bounds_of_floats(spark, tmp_path, suffix):
    values = [1.0, -0.0, float("nan")] * 20
    nested = spark.createDataFrame([(one, (one, 1)) for one in values], "g double, s struct<h:float,n:int>")
    nested.coalesce(1).write.format(suffix).save(f"{tmp_path}/all")
    nested.where("g = 0").coalesce(1).write.format(suffix).save(f"{tmp_path}/zeros")
    for folder, count in (("all", 20), ("zeros", 20)):
        rows = load(spark, source_of({"path": f"{tmp_path}/{folder}", "format": suffix}), None)
        for condition in ("g = 0", "g IN (0.0, 7.0)", "s.h = 0", "g >= 0 AND g < 1"):
            assert rows.where(condition).count() == count
    assert rows.select("s.n").distinct().count() == 1
    whole = load(spark, source_of({"path": f"{tmp_path}/all", "format": suffix}), None)
    assert whole.where("g > 2").count() == whole.where("s.h > 2").count() == 20
