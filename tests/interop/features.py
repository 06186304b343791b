"""What DuckLake has, and who writes and reads it at which spec version: the table of `docs/features.md`.

Each cell is measured: we write, and every client shows the same. DuckDB 1.5.5 reads lakes of 1.0. Lakes of
1.1 are read by ducklakepy, since there is no extension for DuckDB 2.0 to run yet.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from airflow_provider_ducklake.lake.catalog.drafting.ddl import apply_ddl
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import (
    InvalidNameError,
    InvalidStatementError,
    UnsupportedFeatureError,
)
from airflow_provider_ducklake.lake.format.types.variants import decode_variant, encode_variant
from airflow_provider_ducklake.lake.format.versions import write_version
from airflow_provider_ducklake.lake.sql.duckdb.ddl import parse_ddl
from airflow_provider_ducklake.lake.storage.nested_values.shredding import VARIANT
from tests.interop.lakes import alone
from tests.reference import ducklakepy_lake
from tests.reference.catalogs import CatalogDatabase, file_catalog
from tests.reference.duckdb_lake import open_lake

BOTH, ONLY_READS, NEEDS_1_1, NO = "yes", "reads", "needs 1.1", "no"
_REFUSALS = ("does not support nested schemas", "as soon as all its clients", "needs this name")
NUMBERS = pa.table({"i": pa.array(range(40), pa.int32())})


class Client(Protocol):
    def read(self, table: str, at: int | None = None) -> pa.Table: ...


@dataclass(frozen=True)
class Ours:
    lake: Lake

    def read(self, table: str, at: int | None = None) -> pa.Table:
        return self.lake.read_arrow(table, at=at)


@dataclass(frozen=True)
class DuckDB:
    """DuckDB 1.5.5, with a lake attached."""

    lake: Any

    def read(self, table: str, at: int | None = None) -> pa.Table:
        return self.lake.arrow(f"FROM {table}" + ("" if at is None else f" AT (VERSION => {at})"))


Shown = Callable[[Client], object]


def rows_of(client: Client, table: str = "t", at: int | None = None) -> list[str]:
    """Return a table's rows as texts, in order."""
    return sorted(str(_plain(row)) for row in zip(*map(_values, client.read(table, at)), strict=True))


def _values(column: pa.ChunkedArray) -> list[Any]:
    is_moment = pa.types.is_timestamp(column.type)
    return (column.cast(pa.timestamp("ns")).cast(pa.int64()) if is_moment else column).to_pylist()


def _plain(value: Any) -> Any:
    return [_plain(one) for one in value] if isinstance(value, (list, tuple)) else value


@dataclass(frozen=True)
class Feature:
    """Something that a lake may have.

    `write` makes it with our library; without it, `others` do, by spec version. `shown` is what every client
    has to show alike. `encrypted`: in an encrypted lake.
    """

    name: str
    write: Callable[[Lake], object] | None = None
    others: tuple[Callable[[CatalogDatabase], object], ...] = ()
    shown: Shown = rows_of
    encrypted: bool = False


@dataclass(frozen=True)
class Support:
    """A row of the table: a mark for us and for another client, at 1.0 and at 1.1."""

    name: str
    ours_1_0: str
    duckdb_1_5: str
    ours_1_1: str
    ducklakepy: str

    @property
    def line(self) -> str:
        return f"| {self.name} | {self.ours_1_0} | {self.duckdb_1_5} | {self.ours_1_1} | {self.ducklakepy} |"


# --- what is written


def ddl(lake: Lake, text: str) -> None:
    with lake.transaction() as tx:
        apply_ddl(tx, parse_ddl(text, write_version(lake.version)))


def _in_files(lake: Lake, columns: str = "i INTEGER", *, rows: pa.Table = NUMBERS, table: str = "t") -> None:
    lake.set_option("data_inlining_row_limit", 0)
    ddl(lake, f"CREATE TABLE {table} ({columns})")
    lake.append_arrow(table, rows)


def _inlined(lake: Lake) -> None:
    ddl(lake, "CREATE TABLE t (i INTEGER)")
    lake.append_arrow("t", NUMBERS.slice(0, 5))


def _times(lake: Lake, keys: str) -> None:
    lake.set_option("data_inlining_row_limit", 0)
    ddl(lake, f"CREATE TABLE t (i INTEGER, ts TIMESTAMP); ALTER TABLE t SET PARTITIONED BY ({keys})")
    moments = pa.array([n * 30_000_000_000_000 - 10**15 for n in range(40)], pa.timestamp("us"))
    lake.append_arrow("t", NUMBERS.append_column("ts", moments))


def _parts(lake: Lake) -> None:
    _times(lake, "year(ts), hour(ts), bucket(3, i)")


def _epochs(lake: Lake) -> None:
    _times(lake, "epoch_month(ts)")


def _sorted(lake: Lake) -> None:
    ddl(lake, "CREATE TABLE t (i INTEGER); ALTER TABLE t SET SORTED BY (i DESC)")
    lake.set_option("data_inlining_row_limit", 0)
    lake.append_arrow("t", NUMBERS)


def _evolved(lake: Lake) -> None:
    _in_files(
        lake,
        rows=NUMBERS.append_column("s", pa.array([{"a": n} for n in range(40)])),
        columns="i INTEGER, s STRUCT(a BIGINT)",
    )
    ddl(lake, "ALTER TABLE t ADD COLUMN d INTEGER DEFAULT 7; ALTER TABLE t RENAME s.a TO b")
    ddl(lake, "ALTER TABLE t ALTER COLUMN i SET DATA TYPE BIGINT; ALTER TABLE t ADD COLUMN s.c VARCHAR")


def _delete(lake: Lake, *rows: int) -> None:
    (file,) = lake.table_snapshot("t", with_files=True).files or ()
    alone(lake).delete_at("t", {file.id: list(rows)}, [])


def _deleted(lake: Lake) -> None:
    _in_files(lake)
    _delete(lake, 1, 2)
    _delete(lake, 30)


def _one_vector(lake: Lake) -> None:
    lake.set_option("write_deletion_vectors", value=True)
    _in_files(lake)
    _delete(lake, 1, 2)


def _vectors(lake: Lake) -> None:
    lake.set_option("write_deletion_vectors", value=True)
    _deleted(lake)


def _nested(lake: Lake) -> None:
    ddl(lake, "CREATE SCHEMA sales; CREATE SCHEMA sales.europe")
    _in_files(lake, table="sales.europe.orders")


def _system_names(lake: Lake) -> None:
    ddl(lake, "CREATE TABLE t (row_id INTEGER)")
    lake.append_arrow("t", NUMBERS.slice(0, 5).rename_columns(["row_id"]))


def _null(lake: Lake) -> None:
    alone(lake).create_table("t", {"i": "int32", "nothing": "null"})
    lake.append_arrow("t", NUMBERS.append_column("nothing", pa.nulls(40)))


def _nanoseconds(lake: Lake) -> None:
    alone(lake).create_table("t", {"i": "int32", "ts": "timestamptz_ns"})
    moments = pa.array(range(40), pa.timestamp("ns", "UTC"))
    lake.append_arrow("t", NUMBERS.append_column("ts", moments))


def _view(lake: Lake) -> None:
    _in_files(lake)
    ddl(lake, "CREATE VIEW v AS SELECT i + 1 AS j FROM t; COMMENT ON VIEW v IS 'a view'")


def _view_column(lake: Lake) -> None:
    _view(lake)
    ddl(lake, "COMMENT ON COLUMN v.j IS 'more than i'")


def _maintained(lake: Lake) -> None:
    _in_files(lake)
    lake.set_option("data_inlining_row_limit", 10)
    lake.append_arrow("t", NUMBERS.slice(0, 5))
    lake.flush_inlined_data()


def _variants(lake: Lake) -> None:
    alone(lake).create_table("t", {"i": "int32", "doc": "variant"})
    for start, stop in ((0, 2), (2, 40)):  # inlined at 1.1, and in a file
        parts = [
            dict(zip(("metadata", "value"), encode_variant({"a": [i]}), strict=True))
            for i in range(start, stop)
        ]
        rows = {"i": pa.array(range(start, stop), pa.int32()), "doc": pa.array(parts, VARIANT)}
        lake.append_arrow("t", pa.table(rows))


# --- what is shown


def _everywhen(client: Client) -> object:
    """Show the table at the snapshots since it has rows."""
    return [rows_of(client, at=one) for one in (2, 3, 4)]


def _orders(client: Client) -> object:
    return rows_of(client, "sales.europe.orders")


def _through_view(client: Client) -> object:
    if isinstance(client, DuckDB):
        return rows_of(client, "v")
    return sorted(str([value + 1]) for value in client.read("t")["i"].to_pylist())


def _documents(client: Client) -> object:
    if isinstance(client, DuckDB):  # whose Arrow has no type for them
        return sorted((i, text) for i, text in client.lake.sql("SELECT i, doc::JSON::VARCHAR FROM t"))
    rows = client.read("t").to_pylist()
    values = [(row["i"], decode_variant(row["doc"]["metadata"], row["doc"]["value"])) for row in rows]
    return sorted((i, json.dumps(value, separators=(",", ":"))) for i, value in values)


FEATURES = (
    Feature("Rows in Parquet files, at every snapshot", _in_files),
    Feature("Rows inlined in the catalog", _inlined),
    Feature("Partitions by `year`, `month`, `day`, `hour`, `bucket` and values", _parts),
    Feature("Partitions by `epoch_year`, `epoch_month`, `epoch_day`, `epoch_hour`", _epochs),
    Feature("Sorted files", _sorted),
    Feature("Columns added, renamed, promoted; fields of structs, too", _evolved),
    Feature("Delete files that record the deleting snapshot of each row", _deleted, shown=_everywhen),
    Feature("Deletion vectors of one snapshot", _one_vector),
    Feature("Deletion vectors of several snapshots in one file", _vectors, shown=_everywhen),
    Feature("Flush of inlined rows", _maintained),
    Feature("Views, comments", _view, shown=_through_view),
    Feature("Comments on columns of views", _view_column, shown=_through_view),
    Feature("Nested schemas, such as `sales.europe`", _nested, shown=_orders),
    Feature("Inlined rows with columns named `row_id`, `begin_snapshot`, `end_snapshot`", _system_names),
    Feature("Type `null`", _null),
    Feature("Type `timestamptz_ns`", _nanoseconds),
    Feature("`VARIANT`", _variants, shown=_documents),
    Feature("Encrypted files", _deleted, shown=_everywhen, encrypted=True),
)


# --- the table

PAGES = tuple(Path(__file__).parents[2] / name for name in ("docs/features.md", "README.md"))
_HEAD = (
    "| | 1.0: this provider | 1.0: DuckDB 1.5 | 1.1: this provider | 1.1: ducklakepy, for DuckDB 2.0 |",
    "|---|---|---|---|---|",
)
_TABLE = re.compile(r"(?<=<!-- features -->\n).*(?=<!-- end -->)", re.DOTALL)


def measured(feature: Feature, folder: Path) -> Support:
    """Return who supports a feature, by trying."""
    at_1_0, at_1_1 = (_measured(feature, folder, version) for version in ("1.0", "1.1"))
    return Support(feature.name, *at_1_0, *at_1_1)


def _measured(feature: Feature, folder: Path, version: str) -> tuple[str, str]:
    (folder / version).mkdir(parents=True)
    catalog = file_catalog("sqlite", folder / version)
    mark, shown = _by_us(feature, catalog, version)
    if mark == NEEDS_1_1:
        return mark, mark
    client = open_lake(catalog) if version == "1.0" else ducklakepy_lake.open_lake(catalog)
    with client as lake:
        found = feature.shown(DuckDB(lake) if version == "1.0" else lake)
    assert mark == NO or found == shown, f"{feature.name} at {version}: {found} instead of {shown}"
    return mark, BOTH


def _by_us(feature: Feature, catalog: CatalogDatabase, version: str) -> tuple[str, object]:
    if feature.write is None:
        feature.others[version == "1.1"](catalog)
        with Lake.connect(catalog.sqlalchemy_url) as lake:
            try:
                return ONLY_READS, feature.shown(Ours(lake))
            except UnsupportedFeatureError:
                return NO, None
    with Lake.create(
        catalog.sqlalchemy_url, catalog.data_path, version=version, encrypted=feature.encrypted
    ) as lake:
        try:
            feature.write(lake)
        except (UnsupportedFeatureError, InvalidStatementError, InvalidNameError) as error:
            if any(words in str(error) for words in _REFUSALS):
                return NEEDS_1_1, None
            raise
        return BOTH, feature.shown(Ours(lake))


def lines_of(page: Path) -> list[str]:
    """Return the lines of the table in a page."""
    found = _TABLE.search(page.read_text())
    return [] if found is None else found[0].strip().splitlines()


def write(folder: Path) -> None:
    """Measure all features and write the table into its pages."""
    lines = [measured(feature, folder / str(place)).line for place, feature in enumerate(FEATURES)]
    table = "\n" + "\n".join((*_HEAD, *lines)) + "\n\n"
    for page in PAGES:
        page.write_text(_TABLE.sub(lambda _: table, page.read_text()))


if __name__ == "__main__":
    import tempfile

    write(Path(tempfile.mkdtemp()))
