"""Lakes that are large in one direction: a scale model of what years of commits leave."""

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.format.snapshots import CommitKey
from tests.reference.catalogs import CatalogDatabase
from tests.scale import contents
from tests.scale.fill import Filling, filling

TABLE = "main.t"  # which every model has, with rows that exist
TABLE_ID = 1
FIRST_ROW_AT = 3  # the snapshot since which the table has a row
FOUND_ROWS = 100  # of the newest data file, which exists; their ids are -1, -2, …
_COLUMNS_PER_TABLE = 100
_FILES_OF_WIDE = 10


@dataclass(frozen=True, slots=True)
class Direction:
    """A way in which a lake grows: what is counted, how much of it is much, and what fills a lake with it."""

    counted: str
    full_size: int
    fill: Callable[[Filling, int], None]
    smallest: int = 1
    is_wide: bool = False  # whether the size is the number of columns of the table that every model has


def _snapshots(filling: Filling, size: int) -> None:
    contents.add_snapshots(filling, TABLE_ID, size)
    contents.add_commit_keys(filling, TABLE_ID, size)


def _files(filling: Filling, size: int) -> None:
    contents.add_files(filling, TABLE_ID, size)
    contents.add_deletes(filling, TABLE_ID, every=10)
    contents.add_scheduled(filling, max(size // 100, 1))


def _tables(filling: Filling, size: int) -> None:
    contents.add_tables(filling, size, columns=3)


def _columns(filling: Filling, size: int) -> None:
    contents.add_tables(filling, size // _COLUMNS_PER_TABLE, _COLUMNS_PER_TABLE)


def _wide(filling: Filling, _size: int) -> None:
    contents.add_files(filling, TABLE_ID, _FILES_OF_WIDE)


DIRECTIONS = {
    "snapshots": Direction("snapshots of one table, whose files were merged", 1_000_000, _snapshots),
    "files": Direction("data files of one table; one in ten has a delete file", 1_000_000, _files),
    "tables": Direction("tables of three columns and one data file", 100_000, _tables),
    "columns": Direction("columns, in tables of a hundred", 10_000, _columns, smallest=_COLUMNS_PER_TABLE),
    "wide": Direction("columns of one table of ten data files", 3_000, _wide, smallest=3, is_wide=True),
}


def _everything(filling: Filling, size: int) -> None:
    """Fill a lake in every direction a little: each step of the size is some hundred rows."""
    _files(filling, 100 * size)
    _snapshots(filling, 100 * size)
    _tables(filling, 10 * size)
    _columns(filling, 100 * size)


EVERYTHING = Direction("a little of everything", 100, _everything, smallest=3, is_wide=True)


@dataclass(frozen=True, slots=True)
class Model:
    """A lake of a size in a direction, in an empty database."""

    catalog: CatalogDatabase
    direction: Direction
    size: int

    def rows(self, first: int, count: int = 1) -> pa.Table:
        """Return rows for the table that every model has; the ids go down from the first."""
        columns = {"id": pa.array(range(first, first - count, -1), pa.int64()), "name": ["a"] * count}
        if self.direction.is_wide:
            ones = pa.array([1] * count, pa.int64())
            columns |= {f"c{number}": ones for number in range(3, self.size + 1)}
        return pa.table(columns)


def make(model: Model) -> None:
    """Create the lake; its newest snapshot adds `FOUND_ROWS`."""
    catalog, direction = model.catalog, model.direction
    with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
        lake.set_option("data_inlining_row_limit", 0)
        lake.writes.keyed_commit(CommitKey(("none",)))  # creates the table of keys
        with lake.transaction() as tx:
            tx.create_table(TABLE, model.rows(0).schema)
        with lake.transaction() as tx:
            for name in contents.SCHEMAS:
                tx.create_schema(name)
        lake.append_arrow(TABLE, model.rows(-FOUND_ROWS - 1))
        with filling(catalog) as open_filling:
            open_filling.set_times()
            direction.fill(open_filling, model.size)
        lake.append_arrow(TABLE, model.rows(-1, FOUND_ROWS))
