"""What others commit between a plan and its commit: which of it is a conflict, and by which rule.

Each case is tried twice: as it is, and with its rule turned off, which nothing else may make up for.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_ducklake.lake.catalog.committing import overlap
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import TransactionConflictError
from airflow_provider_ducklake.lake.format.snapshots import CommitInfo
from airflow_provider_ducklake.lake.planning.upkeep.compaction import MergeRule
from airflow_provider_ducklake.lake.planning.writing.overwrite import RowScope
from airflow_provider_ducklake.lake.sql.predicate import read_predicate
from airflow_provider_ducklake.lake.transaction import conflicts, declared
from airflow_provider_ducklake.lake.transaction.changes import ChangeSet, CommentOnTable, ReadRows
from airflow_provider_ducklake.lake.transaction.changes_made import ChangeKind
from airflow_provider_ducklake.lake.transaction.conflicts import Operation, Rule
from airflow_provider_ducklake.operators.insert import DuckLakeSparkInsertOperator
from tests.concurrency.verbs import PausingLake, operate
from tests.interop.jobs import compacted_files
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import open_lake

Act = Callable[[Lake], object]
K, OP = ChangeKind, Operation


def rows(first: int, count: int, part: str | None = "a") -> pa.Table:
    return pa.table({"id": range(first, first + count), "part": pa.array([part] * count, pa.string())})


@pytest.fixture
def catalog(new_catalog) -> CatalogDatabase:
    return new_catalog("sqlite")


@pytest.fixture
def lake(catalog) -> Iterator[Lake]:
    """Yield a lake with files of parts a (ids from 0 and 20) and b (from 100), and inlined rows of both."""
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        with lake.transaction() as tx:
            tx.create_table("t", {"id": "int64", "part": "varchar"}, ["part"])
            tx.create_table("other", {"id": "int64"})
        for one in (rows(0, 20), rows(20, 20), rows(100, 20, "b")):
            lake.append_arrow("t", one)
        lake.append_arrow("t", rows(1000, 3))
        lake.append_arrow("t", rows(2000, 2, "b"))
        yield lake


# --- what others do ---


def append(first: int, count: int, part: str | None = "a") -> Act:
    return lambda lake: lake.append_arrow("t", rows(first, count, part))


def delete(where: str) -> Act:
    def act(lake: Lake) -> None:
        with lake.transaction() as tx:
            assert tx.delete_rows("t", where)

    return act


def merge_files(lake: Lake) -> None:
    plan = lake.maintenance.plan_merge("t", MergeRule())
    assert lake.maintenance.commit_compacted(plan.table, compacted_files(lake, plan), CommitInfo())


def flush(lake: Lake) -> None:
    lake.flush_inlined_data("t")


def comment(lake: Lake) -> None:
    with lake.transaction() as tx:
        tx.comment_on_table("t", "altered")


def both(*acts: Act) -> Act:
    def act(lake: Lake) -> None:
        for one in acts:
            one(lake)

    return act


# --- what we do, and let them do it before we commit ---


def replacing(where: str, *, before: Act | None = None) -> Callable[[Lake, Act], None]:
    """Delete the rows of a condition and append one row."""

    def ours(lake: Lake, theirs: Act) -> None:
        if before is not None:
            before(lake)
        with lake.transaction() as tx:
            tx.delete_rows("t", where)
            tx.append_arrow("t", rows(5000, 1, "new"))
            theirs(lake)

    return ours


def made_of(where: str) -> Callable[[Lake, Act], None]:
    """Commit something that was made of the rows of a condition."""

    def ours(lake: Lake, theirs: Act) -> None:
        table, other = lake.table_snapshot("t"), lake.table_snapshot("other")
        scope = RowScope(table, read_predicate(where, table.schema, "t"))
        changes = (
            ReadRows(table.table_id, table.name, scope),
            CommentOnTable(other.table_id, other.name, "made"),
        )
        theirs(lake)
        lake.committer.commit_change_sets([ChangeSet(table.snapshot.id, changes)], CommitInfo())

    return ours


def of_partition(part: str | None) -> Callable[[Lake, Act], None]:
    """Replace a partition."""

    def ours(lake: Lake, theirs: Act) -> None:
        table, other = lake.table_snapshot("t"), lake.table_snapshot("other")
        changes = lake.writes.replacing_partitions(table, {(part,)})
        theirs(lake)
        comment = CommentOnTable(other.table_id, other.name, "made")
        lake.committer.commit_change_sets([ChangeSet(table.snapshot.id, (*changes, comment))], CommitInfo())

    return ours


@dataclass(frozen=True)
class Case:
    """``off`` turns the rule off that makes it a conflict; ``says`` is part of the error."""

    ours: Callable[[Lake, Act], None]
    theirs: Act
    off: Callable[[pytest.MonkeyPatch], None]
    says: str


def free(operation: Operation, *kinds: ChangeKind) -> Callable[[pytest.MonkeyPatch], None]:
    def off(patch: pytest.MonkeyPatch) -> None:
        row = conflicts.CONFLICTS[operation]
        patch.setitem(conflicts.CONFLICTS, operation, row | dict.fromkeys(kinds, Rule.FREE))

    return off


def without(name: str, result: object = None, owner: object = overlap._ChangedSince) -> Callable[..., None]:
    return lambda patch: patch.setattr(owner, name, lambda *_, **__: result)


def unchecked_targets(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(declared, "check_targets", lambda *_: None)


def new_by_begin_alone(patch: pytest.MonkeyPatch) -> None:
    def is_new(since: overlap._ChangedSince, _: int) -> object:
        return since.catalog.tables["data_file"].c.begin_snapshot > since.base

    patch.setattr(overlap._ChangedSince, "_is_new", is_new)


def without_upkeep(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(overlap, "UPKEEP", frozenset())


ROW = "id = 1"
CASES = {
    "rows of the condition in a file": Case(
        replacing("part = 'a'"), append(40, 20), free(OP.SEARCH, K.INSERTED_INTO_TABLE), "added data file"
    ),
    "rows of the condition in the catalog": Case(
        replacing("part = 'a'"), append(40, 1), free(OP.SEARCH, K.INLINED_INSERT), "row to the catalog"
    ),
    "rows where there were none": Case(
        replacing("part = 'z'"),
        append(40, 20, "z"),
        free(OP.SEARCH, K.INSERTED_INTO_TABLE),
        "added data file",
    ),
    "rows in the catalog, which were flushed": Case(
        replacing("id BETWEEN 40 AND 60"),
        both(append(40, 1), flush),
        lambda patch: (without_upkeep(patch), without("_rows", [])(patch)),
        "added data file",
    ),
    "rows in a file that was merged with older ones": Case(
        replacing("id BETWEEN 45 AND 50"),
        both(append(40, 20), merge_files),
        new_by_begin_alone,
        "added data file",
    ),
    "rows that something was made of": Case(
        made_of("id > 30"), append(40, 20), free(OP.READ, K.INSERTED_INTO_TABLE), "added data file"
    ),
    "a row in the catalog that something was made of": Case(
        made_of("id > 30"), append(40, 1), free(OP.READ, K.INLINED_INSERT), "row to the catalog"
    ),
    "rows that went, of which something was made": Case(
        made_of("id < 20"),
        delete("id < 15"),
        free(OP.READ, K.DELETED_FROM_TABLE),
        "deleted rows of data file",
    ),
    "a file that went": Case(
        made_of("id < 20"),
        delete("id < 20"),
        free(OP.READ, K.DELETED_FROM_TABLE),
        "deleted rows of data file",
    ),
    "a file that went, with the snapshot that had it": Case(
        made_of("id < 20"),
        both(delete("id < 20"), lambda lake: lake.expire_snapshots(keep_last=1)),
        without("_has_base", result=True),
        "has expired",
    ),
    "a marked row of which something was made": Case(
        made_of("id < 20"), delete(ROW), free(OP.READ, K.INLINED_DELETE), "deleted rows of data file"
    ),
    "a row that went from the catalog": Case(
        made_of("id >= 1000"), delete("id = 1000"), free(OP.READ, K.INLINED_DELETE), "from the catalog, row"
    ),
    "rows of a partition in a file": Case(
        of_partition("a"), append(40, 20), free(OP.SEARCH, K.INSERTED_INTO_TABLE), "added data file"
    ),
    "rows of a partition in the catalog": Case(
        of_partition("a"), append(40, 1), free(OP.SEARCH, K.INLINED_INSERT), "row to the catalog"
    ),
    "rows without a value of the key": Case(
        of_partition(None), append(40, 20, None), free(OP.SEARCH, K.INSERTED_INTO_TABLE), "added data file"
    ),
    "a delete file in a file that ends": Case(
        replacing("id < 20"), delete("id < 15"), unchecked_targets, "deleted other rows"
    ),
    "a delete file in a file that loses rows": Case(
        replacing("id < 15"), delete("id BETWEEN 3 AND 19"), unchecked_targets, "deleted other rows"
    ),
    "marks in a file that ends": Case(
        replacing("id < 20"), delete(ROW), free(OP.DELETE, K.INLINED_DELETE), "deleted other rows"
    ),
    "marks in a file that loses rows": Case(
        replacing("id < 15"), delete("id = 19"), free(OP.DELETE, K.INLINED_DELETE), "deleted other rows"
    ),
    "marks in a file that gets marks": Case(
        replacing(ROW), delete("id = 19"), free(OP.INLINE_DELETE, K.INLINED_DELETE), "deleted other rows"
    ),
    "a delete file in a file that gets marks": Case(
        replacing(ROW), delete("id BETWEEN 3 AND 19"), unchecked_targets, "deleted other rows"
    ),
    "a file that was merged": Case(replacing(ROW), merge_files, unchecked_targets, "removed the file"),
    "a row in the catalog that ended": Case(
        replacing("id = 1000"),
        delete("id = 1000"),
        free(OP.END_INLINED, K.INLINED_DELETE),
        "deleted or moved row",
    ),
    "a row in the catalog that was flushed": Case(
        replacing("id = 1000"), flush, free(OP.END_INLINED, K.INLINE_FLUSH), "deleted or moved row"
    ),
    "a row in the catalog that was flushed, beside marks": Case(
        replacing("id IN (1, 1000)"), flush, free(OP.INLINE_DELETE, K.INLINE_FLUSH), "deleted or moved row"
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_rows_and_files_that_meet_are_a_conflict(lake, name):
    case, done = CASES[name], []

    with pytest.raises(TransactionConflictError, match=case.says):
        case.ours(lake, both(case.theirs, lambda one: done.append(one.current_snapshot().id)))

    assert done == [lake.current_snapshot().id]


@pytest.mark.parametrize("name", CASES)
def test_each_rule_is_needed(lake, name, monkeypatch):
    case = CASES[name]
    case.off(monkeypatch)

    case.ours(lake, case.theirs)


@pytest.mark.parametrize("is_looked_for", [True, False])
def test_rows_that_went_before_duckdb_flushed_them_are_a_conflict(catalog, lake, is_looked_for, monkeypatch):
    """Its delete files of a flush do not say which snapshots deleted the rows."""
    if not is_looked_for:
        without_upkeep(monkeypatch)
    delete("id = 1001")(lake)

    def theirs(one: Lake) -> None:
        delete("id = 1000")(one)
        with open_lake(catalog) as duck:
            duck.sql("CALL ducklake_flush_inlined_data('lake')")

    if is_looked_for:
        with pytest.raises(TransactionConflictError, match="files were compacted"):
            made_of("id = 1000")(lake, theirs)
    else:
        made_of("id = 1000")(lake, theirs)


def _append_beside(lake: Lake, theirs: Act) -> None:
    with lake.transaction() as tx:
        tx.append_arrow("t", rows(5000, 1))
        theirs(lake)


APART = {
    "a file of another part": (replacing("part = 'a'"), append(40, 20, "b")),
    "a row of another part": (replacing("part = 'a'"), append(40, 1, "b")),
    "a file of other ids": (replacing("id < 20"), append(40, 20)),
    "rows without a part": (replacing("part = 'a'"), append(40, 20, None)),
    "deletes of another file": (replacing("part = 'a'"), delete("id >= 100 AND id < 115")),
    "marks in another file": (replacing("part = 'a'"), delete("id = 100")),
    "another row of the catalog": (replacing("id = 1000"), delete("id = 2000")),
    "rows that were not there to be replaced": (replacing("part = 'z'"), delete("part = 'a'")),
    "files that were merged, and a row of the catalog": (replacing("id = 1000"), merge_files),
    "rows that were flushed, and a file": (replacing(ROW), flush),
    "another partition": (of_partition("a"), both(append(40, 20, "b"), append(60, 1, "b"))),
    "a partition that is not there": (of_partition("z"), both(append(40, 20), delete("id < 15"))),
    "an append, and deletes": (_append_beside, delete("id < 15")),
    "deletes of what nothing was made of": (made_of("id < 20"), delete("id >= 100")),
    "a row of the catalog that nothing was made of": (made_of("id < 20"), delete("id = 2000")),
    "rows that came of which nothing was made": (made_of("id < 20"), both(append(40, 20), append(60, 1))),
}


@pytest.mark.parametrize("name", APART)
def test_rows_and_files_that_are_apart_are_none(lake, name):
    ours, theirs = APART[name]

    ours(lake, theirs)

    assert lake.verify() == []


def test_each_search_of_a_transaction_counts(lake):
    """The first one finds nothing, and the second something."""
    tx = lake.transaction()
    tx.delete_rows("t", "id = 41 AND part = 'a'")
    tx.delete_rows("t", "id = 1")
    lake.append_arrow("t", rows(40, 20))

    with pytest.raises(TransactionConflictError, match="added data file"), tx:
        pass


def test_the_error_names_the_file_and_the_snapshot(lake):
    with pytest.raises(TransactionConflictError) as caught:
        replacing("part = 'a'")(lake, append(40, 20))

    (newest,) = [file for file in lake.table_snapshot("t", with_files=True).files if file.begin_snapshot == 7]
    assert newest.path in str(caught.value)
    assert caught.value.snapshot_id == 7


ZONED = {"moment": "timestamptz"}


@pytest.mark.parametrize(
    ("columns", "keys", "values", "wanted", "is_conflict"),
    [
        ({"day": "date"}, ["day"], ["2026-01-02"], ("2026-01-02",), True),
        ({"day": "date"}, ["day"], ["2026-01-03"], ("2026-01-02",), False),
        ({"day": "date"}, ["year(day)", "month(day)"], ["2026-01-03"], ("2026", "1"), True),
        ({"day": "date"}, ["year(day)", "month(day)"], ["2026-02-03"], ("2026", "1"), False),
        ({"moment": "timestamp"}, ["day(moment)"], ["2026-01-03 10:00:00"], ("3",), True),
        ({"moment": "timestamp"}, ["day(moment)"], ["2026-01-04 10:00:00"], ("3",), False),
        (ZONED, ["day(moment)"], ["2026-01-03 10:00:00Z"], ("3",), True),
        (ZONED, ["day(moment)"], ["2026-01-04 10:00:00Z"], ("3",), False),
        ({"n": "float64"}, ["n"], ["0.1"], ("0.1",), True),
        ({"n": "float64"}, ["n"], ["0.25"], ("0.1",), False),
        ({"n": "decimal(9,2)"}, ["n"], ["1.50"], ("1.50",), True),
        ({"n": "decimal(9,2)"}, ["n"], ["1.51"], ("1.50",), False),
        ({"text": "varchar"}, ["text"], ["A"], ("a",), False),
        ({"text": "varchar"}, ["text"], ["a" * 100], ("a" * 100,), True),
        ({"text": "varchar"}, ["text"], ["a" * 100], ("a" * 99,), False),
        ({"id": "int64"}, ["bucket(4, id)"], ["7"], None, True),
        ({"id": "int64"}, ["bucket(4, id)"], ["7"], ("9",), False),
    ],
)
@pytest.mark.parametrize("count", [1, 20])
def test_partitions_meet_by_their_values(new_catalog, columns, keys, values, wanted, is_conflict, count):
    catalog = new_catalog("postgres")
    (name,) = columns
    given = pa.table({name: pa.array(values * count, pa.string()).cast(_arrow(columns[name]))})
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        with lake.transaction() as tx:
            tx.create_table("t", columns, keys)
            tx.create_table("other", {"id": "int64"})
        if wanted is None:
            wanted = _partition_of(lake, given)
        ours = partial(_replace, lake, wanted, given)
        if is_conflict:
            with pytest.raises(TransactionConflictError):
                ours()
        else:
            ours()


def _arrow(type_: str) -> pa.DataType:
    return {
        "date": pa.date32(),
        "timestamp": pa.timestamp("us"),
        "timestamptz": pa.timestamp("us", "UTC"),
        "float64": pa.float64(),
        "decimal(9,2)": pa.decimal128(9, 2),
        "varchar": pa.string(),
        "int64": pa.int64(),
    }[type_]


def _partition_of(lake: Lake, given: pa.Table) -> tuple[str | None, ...]:
    lake.append_arrow("t", pa.concat_tables([given] * 20))
    (file,) = lake.table_snapshot("t", with_files=True).files
    return file.partition_values


def _replace(lake: Lake, wanted: tuple[str | None, ...], given: pa.Table) -> None:
    table, other = lake.table_snapshot("t"), lake.table_snapshot("other")
    changes = lake.writes.replacing_partitions(table, {wanted})
    lake.append_arrow("t", given)
    comment = CommentOnTable(other.table_id, other.name, "made")
    lake.committer.commit_change_sets([ChangeSet(table.snapshot.id, (*changes, comment))], CommitInfo())


FITS = {
    "overwrite_where": ({"overwrite_where": "part = 'a'"}, merge_files),
    "overwrite_partitions": ({"mode": "overwrite_partitions"}, merge_files),
    "overwrite": ({"mode": "overwrite"}, merge_files),
    "append": ({}, comment),
}


@pytest.fixture
def insert(catalog, lake, tmp_path) -> Iterator[Callable[[dict[str, Any], Act], dict[str, Any]]]:
    """Yield what inserts five rows of part a by one job, which others interrupt before its commit."""
    assert lake
    source = tmp_path / "rows.parquet"
    pq.write_table(rows(3000, 5), source)
    with PausingLake.connect(catalog.sqlalchemy_url) as pausing:

        def run(arguments: dict[str, Any], *theirs: Act) -> dict[str, Any]:
            left = list(theirs)

            def meanwhile() -> None:
                left.pop(0)(lake)
                pausing.meanwhile = meanwhile if left else None

            pausing.meanwhile = meanwhile
            arguments = {"table": "t", **arguments}
            return operate(DuckLakeSparkInsertOperator(task_id="i", source=str(source), **arguments), pausing)

        yield run


@pytest.mark.parametrize("name", FITS)
def test_files_that_still_fit_after_a_conflict_are_committed(lake, insert, name):
    arguments, theirs = FITS[name]
    before = lake.read_arrow("t").num_rows

    summary = insert(arguments, theirs)

    kept = {"append": before, "overwrite": 0}.get(name, 22)  # rows of part b
    assert summary["snapshot_id"] == lake.current_snapshot().id
    assert lake.read_arrow("t").num_rows == kept + 5
    assert lake.verify() == []


@pytest.mark.parametrize("name", [name for name in FITS if name != "append"])
def test_rows_that_came_are_a_conflict_also_where_the_files_were_compacted(insert, name):
    arguments, _ = FITS[name]

    with pytest.raises(TransactionConflictError, match="added"):
        insert(arguments, both(append(40, 20), merge_files))


def test_files_that_change_at_each_look_are_looked_at_again(lake, insert):
    with lake.transaction() as tx:
        tx.append_arrow("t", rows(500, 60))
    others = [delete(f"id BETWEEN {500 + 15 * one} AND {511 + 15 * one}") for one in range(3)]

    summary = insert({"overwrite_where": "id BETWEEN 556 AND 559 OR id BETWEEN 3000 AND 3010"}, *others)

    assert summary["snapshot_id"] == lake.current_snapshot().id
    left = set(lake.read_arrow("t")["id"].to_pylist())
    assert left & set(range(500, 3010)) == {
        *(512, 513, 514, 527, 528, 529, *range(542, 556)),
        *(1000, 1001, 1002, 2000, 2001),
        *range(3000, 3005),
    }


@pytest.mark.parametrize("part", ["a", "b"])
def test_tasks_that_create_one_table_each_overwrite_their_own_rows(lake, insert, part):
    def create(one: Lake) -> None:
        with one.transaction() as tx:
            tx.create_table("new", {"id": "int64", "part": "varchar"}, ["part"])
            tx.append_arrow("new", rows(0, 20, part))

    arguments = {"table": "new", "create_table": True, "partition_by": ["part"]}
    if part == "b":
        insert({**arguments, "mode": "overwrite_partitions"}, create)
        assert lake.read_arrow("new").num_rows == 25
    else:
        with pytest.raises(TransactionConflictError, match="created a table of that name"):
            insert({**arguments, "overwrite_where": "part = 'a'"}, create)


def test_other_columns_are_a_conflict_of_an_append(insert):
    def add_column(one: Lake) -> None:
        with one.transaction() as tx:
            tx.add_column("t", "more", "int32")

    with pytest.raises(TransactionConflictError, match="altered it"):
        insert({}, add_column)
