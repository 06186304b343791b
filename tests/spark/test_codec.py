"""Documents that may outlive a release are written and read as version 5 of their format has them.

``golden/job_documents/version_5.json`` was written by hand from version 4, which named an engine.
"""

import datetime as dt
import json
import uuid
from dataclasses import replace
from decimal import Decimal
from math import isnan
from pathlib import Path

import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import DuckLakeError, SparkJobError
from airflow_provider_ducklake.lake.format.files import ColumnStats, DataFile, FileKey
from airflow_provider_ducklake.lake.format.names.identifiers import QualifiedName
from airflow_provider_ducklake.lake.format.options import Options
from airflow_provider_ducklake.lake.format.partitioning import PartitionField, PartitionSpec, Transform
from airflow_provider_ducklake.lake.format.schema import Default, TableSchema, new_columns
from airflow_provider_ducklake.lake.format.snapshots import (
    ColumnId,
    DataFileId,
    DeleteFileId,
    PartitionId,
    SchemaId,
    Snapshot,
    SnapshotId,
    TableId,
    TableSnapshot,
)
from airflow_provider_ducklake.lake.planning.reading.predicates import AllOf, Comparison, NullTest, Operator
from airflow_provider_ducklake.lake.planning.upkeep.compaction import Compaction
from airflow_provider_ducklake.lake.planning.writing.staged import StagedWrite
from airflow_provider_ducklake.lake.planning.writing.write import (
    Evolution,
    NewDeletes,
    NewTable,
    WriteResult,
    plan_write,
)
from airflow_provider_ducklake.lake.spark.job import io as job_io
from airflow_provider_ducklake.lake.spark.job import request as jobs
from airflow_provider_ducklake.lake.spark.job.codec import (
    FORMAT_VERSION,
    DocumentError,
    decode,
    decode_cell,
    dumps,
    encode,
    encode_cell,
    loads,
)
from airflow_provider_ducklake.lake.spark.job.documents import check_filter, reading
from airflow_provider_ducklake.lake.spark.job.io import StreamOwner
from airflow_provider_ducklake.lake.spark.job.request import job_directory
from airflow_provider_ducklake.lake.spark.job.results import (
    Batch,
    DeletesPart,
    Done,
    ResultPart,
    RowChangesDone,
    StagedWriteDocument,
    WrittenResult,
    summary,
)
from airflow_provider_ducklake.lake.transaction.changes import MergedFile, RewriteSource, RewrittenFile
from tests.interop.test_odd import ODD, paths, replaced
from tests.interop.test_reads_at_every_snapshot import SCENARIOS, TABLE
from tests.reference.duckdb_lake import open_lake

RECORDED = json.loads(
    (Path(__file__).parent.parent / "golden" / "job_documents" / "version_5.json").read_text()
)
JOB_ID, UUID = "0190f3c1-0000-7000-8000-000000000001", "0190f3c1-0000-7000-8000-00000000000a"
ROOT = "LAKE/main/t/"
KEY = FileKey("AAECAwQFBgcICQoLDA0ODw==")
DIRECTORY = job_directory(ROOT, JOB_ID)
COLUMNS = {
    "id": "int64",
    "day": "date",
    "s": "struct(a varchar, b decimal(18, 4)[])",
    "m": "map(varchar, float64)",
}
FIELDS = tuple(
    PartitionField(ColumnId(column), Transform.parse(text))
    for column, text in ((2, "year"), (1, "bucket(16)"))
)
SNAPSHOT = Snapshot(SnapshotId(7), 3, 12, 15, dt.datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=dt.UTC))


def schema() -> TableSchema:
    first, day, *others = new_columns(COLUMNS, not_null=["id"]).columns
    late = replace(day, initial_default="2020-01-01", default=Default("2020-01-02", "literal", "duckdb"))
    return TableSchema((first, late, *others))


def file(number: int) -> DataFile:
    stats = (
        ColumnStats(ColumnId(1), 2, 0, "1", "2", None, 44),
        ColumnStats(ColumnId(4), None, None, None, None),
        ColumnStats(
            *(ColumnId(9), 2, 0, "0.5", "1.5"),
            contains_nan=True,
            column_size_bytes=40,
            only_nan=True,
            extra_stats='{"x": 1}',
            min_is_exact=True,
            max_is_exact=False,
        ),
    )
    return DataFile(
        f"{DIRECTORY}{number}.parquet",
        2,
        1000 + number,
        99 if number else None,
        {one.column_id: one for one in stats},
        ("2020", None),
        has_row_ids=bool(number),
        row_group_count=number + 1,
        encryption_key=KEY if number else None,
    )


def result(*numbers: int) -> WriteResult:
    details = {"seconds": 1.5, "application_id": None, "spark_version": "é"}
    return WriteResult(schema(), FIELDS, tuple(map(file, numbers)), 2 * len(numbers), details)


def written(*numbers: int) -> WrittenResult:
    return WrittenResult(**summary(result(*numbers)), parts=("part-00000.json",) if numbers else ())


NAME = QualifiedName.of(("main", "t"))
TABLE_OF_RECORDS = TableSnapshot(
    *(SNAPSHOT, TableId(5), UUID, SchemaId(0), NAME, schema(), ROOT, PartitionSpec(FIELDS, PartitionId(6)))
)
NEW = NewTable(SNAPSHOT, SchemaId(0), NAME, UUID, ROOT, Options({"parquet_compression": "zstd"}))
STAGED = [
    StagedWrite(JOB_ID, DIRECTORY, "insert", target, result(0, 1)) for target in (TABLE_OF_RECORDS, NEW)
]
MATCHING = AllOf(
    (Comparison(ColumnId(1), Operator.AT_LEAST, -7), Comparison(ColumnId(2), Operator.AT_MOST, b"z"))
)
SOURCES = (RewriteSource(DataFileId(1), DeleteFileId(9), 2), RewriteSource(DataFileId(2), None))
COMPACTED = MergedFile | RewrittenFile
DOCUMENTS = {
    "part": (ResultPart(JOB_ID, (file(0), file(1))), ResultPart),
    "done": (Done(JOB_ID, (written(0, 1),)), Done),
    "deletes": (
        DeletesPart(JOB_ID, (NewDeletes(DataFileId(3), f"{DIRECTORY}d.parquet", 2, 500, 60, KEY),), (8, 9)),
        DeletesPart,
    ),
    "row changes done": (
        RowChangesDone(JOB_ID, (written(), written(1)), ("deletes-00000.json",), MATCHING),
        RowChangesDone,
    ),
    "stage of a table that is existing": (StagedWriteDocument.of(STAGED[0]), StagedWriteDocument),
    "stage of a table that is new": (StagedWriteDocument.of(STAGED[1]), StagedWriteDocument),
    "batch": (
        Batch(
            **summary(result(1)),
            query_id="00000000-0000-0000-0000-000000000007",
            batch_id=4,
            job_id=JOB_ID,
            data_files=(file(1),),
        ),
        Batch,
    ),
    "owner of a stream": (StreamOwner("main.t", UUID, "dag.task"), StreamOwner),
    "merged": (
        MergedFile(
            *(file(1), (DataFileId(1), DataFileId(2)), SnapshotId(3), SnapshotId(5), 20, PartitionId(6))
        ),
        COMPACTED,
    ),
    "rewritten": (RewrittenFile(file(1), SOURCES, SnapshotId(7), PartitionId(6)), COMPACTED),
    "rewritten, nothing left": (
        RewrittenFile(None, (RewriteSource(DataFileId(1), None, 3),), SnapshotId(7)),
        COMPACTED,
    ),
}


def test_every_recorded_document_is_tried():
    assert set(RECORDED) == set(DOCUMENTS)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_is_written_and_read_as_it_was(name):
    value, type_ = DOCUMENTS[name]
    recorded = {key: item for key, item in RECORDED[name].items() if key != "v"}

    assert RECORDED[name]["v"] == FORMAT_VERSION
    assert encode(value, type_) == recorded
    assert decode(recorded, type_) == value


@pytest.mark.parametrize("staged", STAGED, ids=["existing", "new"])
def test_a_staged_write_comes_back_from_its_record(staged):
    assert StagedWriteDocument.of(staged).staged(staged.result) == staged


def test_a_staged_write_is_for_the_target_that_an_older_release_registered():
    digests = [job_io.target_of_stage(one.target).digest for one in STAGED]

    assert digests == [
        "dbab9e6c237b0a2e375702fa934815d3e69d53359935c3417a30a7a8ec096582",
        "d62a41eee629402cb20dd4187ac300b9b1ccb3d3ad1a866b705e7eaf223e5fdc",
    ]


@pytest.mark.parametrize(
    "rows",
    [
        Comparison(ColumnId(99), Operator.EQUAL, 1),
        Comparison(ColumnId(1), Operator.EQUAL, b"z"),
        Comparison(ColumnId(1), Operator.EQUAL, None),
        NullTest(ColumnId(1)),
    ],
)
def test_what_a_job_says_of_matching_rows_is_a_comparison_of_the_tables_columns(rows):
    with pytest.raises(SparkJobError, match="is not a document"), reading("done.json"):
        check_filter(AllOf((Comparison(ColumnId(1), Operator.AT_LEAST, -7), rows)), schema())


# --- any document is read as it was written ---

CELLS = [
    *(None, True, 0, -(2**70), "", "é\0", 1.5, -0.0, float("inf"), b"", b"\xff\0", bytearray(b"x")),
    *(Decimal("1.50"), Decimal("-1E+30"), dt.date(1, 1, 1), dt.time(23, 59, 59, 999999), uuid.UUID(int=5)),
    *(dt.datetime.fromisoformat("2024-01-01T00:00:00.000005"), dt.datetime(2024, 1, 1, tzinfo=dt.UTC)),
    *(dt.timedelta(days=-838, microseconds=7), memoryview(b"xy")),
]


@pytest.mark.parametrize(
    "cell", CELLS, ids=lambda cell: f"{type(cell).__name__} {str(cell)[:24]}".split(" at ")[0]
)
def test_cells_come_back_as_they_were(cell):
    found = decode_cell(json.loads(json.dumps(encode_cell(cell), allow_nan=False)))

    assert (found, str(found)) == (
        cell,
        str(bytes(cell) if isinstance(cell, memoryview | bytearray) else cell),
    )


def test_nan_comes_back():
    assert isnan(decode_cell(json.loads(json.dumps(encode_cell(float("nan"))))))


def test_a_cell_of_no_known_type_is_not_sent():
    with pytest.raises(TypeError, match="object"):
        encode_cell(object())


WHERE = [
    None,
    "i = 1 OR (s LIKE 'a%' AND s NOT LIKE '_b')",
    "i IN (1, 2) AND i NOT IN (5) AND s IS NOT NULL AND l IS NULL",
    "st.a >= 1.5 AND i <> 4",
]


@pytest.mark.parametrize("where", WHERE)
def test_plans_come_back(catalog, where):
    with open_lake(catalog) as duck:
        for statement in [TABLE, *SCENARIOS["inlined rows and deletes, flushed"][:-3]]:
            duck.sql(statement)
        duck.sql("ALTER TABLE t ADD COLUMN late DATE DEFAULT '2024-01-01'")
        duck.sql("INSERT INTO t SELECT * FROM t WHERE i < 130")
        duck.sql("INSERT INTO t SELECT * FROM t LIMIT 1")  # which lies in the catalog
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        scan = lake.scan("t", columns=("s", "late"), filter=where)
        changes = lake.changes("t", 0, lake.current_snapshot().id).plan

    for plan in (scan, changes):
        found = decode(json.loads(json.dumps(encode(plan, type(plan)), allow_nan=False)), type(plan))
        assert found == _in_plain_rows(plan)
    assert scan.inlined_rows
    assert changes.files


def _in_plain_rows(plan):
    """Return a plan of which the rows of the database are tuples and dicts; its table names no files."""
    inlined = "inlined_rows" if hasattr(plan, "inlined_rows") else "inlined"
    parts = tuple(
        replace(part, rows=tuple(dict(row) for row in part.rows)) for part in getattr(plan, inlined)
    )
    plan = replace(plan, table=replace(plan.table, files=None), **{inlined: parts})
    if hasattr(plan, "inlined_deletes"):
        deletes = {key: tuple(places) for key, places in plan.inlined_deletes.items()}
        return replace(plan, inlined_deletes=deletes)
    return plan


def test_a_request_of_each_kind_comes_back(sqlite_catalog):
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as reference:
        reference.sql("CREATE TABLE t AS SELECT x AS i, 'a' AS s FROM range(5) r(x)")
        reference.sql("INSERT INTO t SELECT x, 'b' FROM range(5) r(x)")
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        scan = _in_plain_rows(lake.scan("t", filter="s LIKE 'a%' OR i IN (1, 2)"))
        feed = _in_plain_rows(lake.changes("t", 0, lake.current_snapshot().id).plan)
        merge = lake.maintenance.plan_merge("t")
    rows = jobs.TransformSource("module:function", {"a": jobs.Dataset("csv", "in.csv", {"header": "true"})})
    clauses = (
        jobs.Clause(jobs.Action.UPDATE, "target.i > 1", {"s": "'x'"}),
        jobs.Clause(jobs.Action.DELETE, None, None),
    )
    change = jobs.RowChangeSource(
        scan, rows, "target.i = source.i", clauses, (jobs.Clause(jobs.Action.INSERT),)
    )
    steps = (jobs.Step("SELECT 1", 0, None, ("a",)), jobs.Step("SELECT 2", view="v"))
    table = replace(merge.table, files=None)
    sources = (
        jobs.LakeSource({"t": scan, "c": feed}, {}, steps, None, frozenset({"t", "a"})),
        jobs.StreamSource(rows, "/checkpoint/", JOB_ID),
        change,
        jobs.OverwriteSource(jobs.DatasetSource(jobs.Dataset("parquet", "in.parquet")), change),
        jobs.CompactionSource(
            Compaction(table, merge.bins, marks={merge.bins[0].files[0].id: (1, 3)}), JOB_ID, 4
        ),
        jobs.SqlSource("SELECT 'é'", {}),
    )
    plan = plan_write(table, jobs.job_directory(table.root, JOB_ID))
    plan = replace(
        plan, evolution=Evolution(9, Options({"version": "1.1"}), widens=True, fixed=(1,)), where=scan.where
    )
    for source in sources:
        request = jobs.JobRequest(JOB_ID, source, (plan, plan), "sql")

        assert decode(loads(dumps(encode(request, jobs.JobRequest)), "a request"), jobs.JobRequest) == request


def test_what_many_files_share_is_written_once(sqlite_catalog):
    with open_lake(sqlite_catalog, data_inlining_row_limit=0) as duck:
        duck.sql("CREATE TABLE t (a_long_name BIGINT)")
        for number in range(6):
            duck.sql(f"INSERT INTO t VALUES ({number})")
    with Lake.connect(sqlite_catalog.sqlalchemy_url) as lake:
        compaction = lake.maintenance.plan_merge("t")
    (files,) = compaction.bins
    bins = tuple(replace(files, files=(one,)) for one in files.files)

    compaction = replace(compaction, table=replace(compaction.table, files=None), bins=bins)
    document = encode(compaction, Compaction)

    assert json.dumps(document).count("a_long_name") == 2  # of the table, and of all bins
    found = decode(document, Compaction)
    assert found == compaction
    assert len({id(one.schema) for one in found.bins}) == 1
    with pytest.raises(DocumentError, match=r"bins\[0\].schema: 1 is not"):
        decode(document | {"bins": [document["bins"][0] | {"schema": 1}]}, Compaction)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_whatever_stands_in_a_document_is_refused_or_is_what_it_says(name):
    """What is read is written as it was again: nothing is taken for something else, left out or put in."""
    type_, taken, tried = DOCUMENTS[name][1], 0, 0
    honest = json.dumps({key: item for key, item in RECORDED[name].items() if key != "v"})
    for path in paths(json.loads(honest)):
        for value in (*ODD, ...):
            document = replaced(json.loads(honest), path, value)
            tried += 1
            try:
                found = decode(document, type_)
            except (DocumentError, DuckLakeError):
                continue
            taken += 1
            ours, theirs = (json.dumps(one, sort_keys=True) for one in (encode(found, type_), document))
            assert ours == theirs, (path, value)
    assert 0 < taken < tried


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_key_that_is_unknown_or_missing_is_named(name):
    type_ = DOCUMENTS[name][1]
    honest = {key: item for key, item in RECORDED[name].items() if key != "v"}

    with pytest.raises(DocumentError, match=r"^'odd' is unknown"):
        decode(honest | {"odd": 1}, type_)
    for key in honest.keys() - {"kind"}:
        with pytest.raises(DocumentError, match=f"^{key} is missing"):
            decode({one: item for one, item in honest.items() if one != key}, type_)


ODD_PLACES = {
    "data_files[1].column_stats[0][2]: -1 is not a whole number from 0 to": (
        *("part", ResultPart, ("data_files", 1, "column_stats", 0, 2), -1),
    ),
    "results[0].schema[2].children[1].nullable: 'no' is not true or false": (
        *("done", Done, ("results", 0, "schema", 2, "children", 1, "nullable"), "no"),
    ),
    "results[0].partition_fields: 7 is not a list": ("done", Done, ("results", 0, "partition_fields"), 7),
    "target.name: ['main'] is not read: a name without a schema": (
        *("stage of a table that is new", StagedWriteDocument, ("target", "name"), ["main"]),
    ),
    "target: 'odd' is not one of new, new with its schema, existing": (
        *("stage of a table that is new", StagedWriteDocument, ("target", "kind"), "odd"),
    ),
    "target.options['parquet_compression']: 3 is not a string": (
        *(
            "stage of a table that is new",
            StagedWriteDocument,
            ("target", "options", "parquet_compression"),
            3,
        ),
    ),
}


@pytest.mark.parametrize("problem", ODD_PLACES)
def test_an_error_names_the_place(problem):
    name, type_, path, value = ODD_PLACES[problem]
    honest = {key: item for key, item in RECORDED[name].items() if key != "v"}

    with pytest.raises(DocumentError) as refused:
        decode(replaced(json.loads(json.dumps(honest)), path, value), type_)

    assert str(refused.value).startswith(problem)


@pytest.mark.parametrize("depth", [10, 300, 900, 5_000, 100_000])
def test_no_depth_of_a_document_is_too_much(depth):
    column = '{"id": 1, "name": "a", "type": "struct", "nullable": true, "initial_default": null, '
    column += '"default": ["NULL", "literal", "duckdb"], "children": ['
    text = json.dumps({key: item for key, item in RECORDED["done"].items() if key != "results"})
    (done,) = RECORDED["done"]["results"]
    schema = (column * depth) + "]}" * depth
    result = json.dumps(done | {"schema": []}).replace('"schema": []', f'"schema": [{schema}]')
    try:
        decode(loads(f'{text[:-1]}, "results": [{result}]}}'.encode(), "_DONE"), Done)
    except (DocumentError, DuckLakeError):
        return
    assert depth < 1_000


REFUSED = {
    '{"v": 3, "a": 1, "a": 2}': "a key twice",
    '{"v": 3, "a": {"b": 1, "b": 1}}': "a key twice",
    '{"v": 3, "a": NaN}': "NaN is not",
    '{"v": 3, "a": -Infinity}': "-Infinity is not",
    '{"v": true}': "has job format True",
    '{"v": 3.0}': "has job format 3.0",
    '{"a": 1}': "has job format None",
    "[2]": "has job format None",
    f'{{"v": 3, "a": {"9" * 5_000}}}': "not a complete JSON",
}


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: text[:32])
def test_what_is_no_document_is_refused(text):
    with pytest.raises(SparkJobError, match=REFUSED[text]):
        loads(text.encode(), "_DONE")


def test_what_has_no_form_is_not_sent():
    with pytest.raises(TypeError, match="has no form in JSON"):
        encode(1j, complex)


def test_a_time_without_its_zone_is_no_time():
    assert decode("2024-01-01T00:00:00+00:00", dt.datetime) == dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    with pytest.raises(DocumentError):
        decode("2024-01-01T00:00:00", dt.datetime)
