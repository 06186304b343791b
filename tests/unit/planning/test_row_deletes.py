import pytest

from airflow_provider_ducklake.lake.errors import InvalidInputError
from airflow_provider_ducklake.lake.format.files import LiveDataFile, LiveDeleteFile
from airflow_provider_ducklake.lake.format.snapshots import DataFileId, DeleteFileId, SnapshotId
from airflow_provider_ducklake.lake.planning.writing.write import LostRows, plan_row_deletes
from airflow_provider_ducklake.lake.transaction.changes import PositionsFile

DELETE_FILE = LiveDeleteFile(DeleteFileId(9), "/d", "parquet", 5, 1, SnapshotId(2), None)


def loss(count: int, dead: int = 0, *, in_file: bool = False, marks: bool = False) -> LostRows:
    """Return what a file of 20 rows loses."""
    delete_file = DELETE_FILE if in_file else None
    file = LiveDataFile(DataFileId(1), "/f", 20, 1, None, 0, SnapshotId(1), delete_file=delete_file)
    return LostRows(file, PositionsFile("/p", count, 1, 1), dead, has_marks=marks)


@pytest.mark.parametrize(
    ("given", "fate"),
    [
        (loss(20), "ended"),
        (loss(15, 5, in_file=True), "ended"),
        (loss(15, 5, marks=True), "in_delete_files"),
        (loss(10, 10, marks=True), "marked"),
        (loss(10), "marked"),
        (loss(11), "in_delete_files"),
        (loss(1, 5, in_file=True), "in_delete_files"),
        (loss(0), None),
    ],
)
def test_each_file_has_one_fate(given, fate):
    plan = plan_row_deletes([given], mark_limit=10)

    assert {name: getattr(plan, name) for name in ("ended", "marked", "in_delete_files")} == {
        name: (given,) if name == fate else () for name in ("ended", "marked", "in_delete_files")
    }


def test_a_file_cannot_lose_more_rows_than_it_has():
    with pytest.raises(InvalidInputError, match="has 15 rows left, so 16 cannot be deleted"):
        plan_row_deletes([loss(16, 5)], mark_limit=10)
