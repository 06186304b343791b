"""What a child process does with one file: have it read by others, send it through a door, compare.

Each door begins with a lake of its own in a folder, and leaves it there: another process reads it.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import DuckLakeError
from tests.corpora.comparison import is_table, other_arrow, other_table
from tests.corpora.outcomes import Outcome, of_error
from tests.reference.catalogs import CatalogDatabase, file_catalog
from tests.reference.duckdb_lake import open_lake

INSERT, APPEND, ADD, INTO = "insert", "append_arrow", "add_data_files", "insert into DuckDB's types"
DOORS = {"parquet": (INSERT, APPEND, ADD), "text": (INSERT, INTO)}
READERS = ("read_arrow", "LakeSession.read")
_READS = {"parquet": "read_parquet", "csv": "read_csv", "json": "read_json"}
Verdict = tuple[Outcome, str]


def format_of(file: Path) -> str | None:
    """Return what a file is read as; None: it is none of ours."""
    suffixes = {one.lower() for one in file.suffixes}
    if suffixes & {".parquet", ".parq"}:
        return "parquet"
    if suffixes & {".csv", ".tsv"}:
        return "csv"
    return "json" if suffixes & {".json", ".jsonl", ".ndjson"} else None


def source_in(area: Path) -> tuple[Path, str]:
    """Return the file that was copied into a folder, and DuckDB's text for its rows."""
    (file,) = area.glob("source.*")
    name = str(file).replace("'", "''")
    return file, f"{_READS[format_of(file) or '']}('{name}')"


def read_by_duckdb(area: Path) -> int:
    """Return the number of rows that DuckDB reads, all columns of them."""
    _, source = source_in(area)
    with duckdb.connect() as duck:
        duck.execute(f"CREATE TABLE t AS FROM {source}")
        return duck.execute("SELECT count(*) FROM t").fetchone()[0]


def read_by_pyarrow(area: Path) -> int:
    """Return the number of rows that pyarrow reads."""
    return _arrow(area).num_rows


def _arrow(area: Path) -> pa.Table:
    rows = pq.read_table(source_in(area)[0])
    rows.validate(full=True)
    return rows


def through(door: str, area: Path, session: Callable[[Lake], Any] | None = None) -> Verdict:
    """Send the file of a folder through a door; ``session`` makes a LakeSession."""
    catalog = file_catalog("sqlite", _folder(door, area))
    try:
        with Lake.create(catalog.sqlalchemy_url, catalog.data_path) as lake:
            _STORES[door](lake, catalog, area, session and session(lake))
    except Exception as error:  # noqa: BLE001 - what users would see
        return of_error(error)
    return Outcome.SAME, ""


def _insert(_lake: Lake, _catalog: CatalogDatabase, area: Path, session: Any) -> None:
    session.insert("t", str(source_in(area)[0]), create_table=True)


def _insert_into(_lake: Lake, catalog: CatalogDatabase, area: Path, session: Any) -> None:
    file, source = source_in(area)
    with open_lake(catalog) as duck:
        duck.sql(f"CREATE TABLE t AS FROM {source} LIMIT 0")
    session.insert("t", str(file))


def _append(lake: Lake, _catalog: CatalogDatabase, area: Path, _session: Any) -> None:
    rows = _arrow(area)
    with lake.transaction() as tx:
        tx.create_table("t", rows.schema)
    lake.append_arrow("t", rows)


def _add(lake: Lake, catalog: CatalogDatabase, area: Path, _session: Any) -> None:
    file, source = source_in(area)
    _table_for(lake, catalog, file, source)
    with lake.transaction() as tx:
        tx.add_data_files("t", [str(file)])


def _table_for(lake: Lake, catalog: CatalogDatabase, file: Path, source: str) -> None:
    """Make the table as DuckDB has the file's columns; else as pyarrow, else with some column."""
    with suppress(duckdb.Error), open_lake(catalog) as duck:
        duck.sql(f"CREATE TABLE t AS FROM {source} LIMIT 0")
        return
    columns: Any = {"id": "int64"}
    with suppress(pa.ArrowException, OSError):
        columns = pq.read_schema(file)
    with lake.transaction() as tx:
        try:
            tx.create_table("t", columns)
        except DuckLakeError:
            tx.create_table("t", {"id": "int64"})


_STORES = {INSERT: _insert, INTO: _insert_into, APPEND: _append, ADD: _add}


def stored(door: str, area: Path) -> Verdict:
    """Compare the table behind a door, as DuckDB reads it, with what DuckDB reads of the file."""
    catalog, source = _catalog(door, area), source_in(area)[1]
    with open_lake(catalog) as duck:
        try:
            duck.sql("CREATE TEMP TABLE read_once AS FROM t")
        except duckdb.Error as error:
            return Outcome.BAD, _first(error)
    with open_lake(catalog) as duck:  # an INTERNAL error shuts the DuckDB that met it
        try:
            reason = other_table(duck, "t", source, of_types=not _is_text(door, area))
        except duckdb.Error as error:
            reason = f"not comparable: {_first(error)}"
        if reason and door == APPEND and is_table(duck, "t", _arrow(area)):
            return Outcome.ARROW, reason
    return (Outcome.OTHER, reason) if reason else (Outcome.SAME, "")


def _is_text(door: str, area: Path) -> bool:
    """Whether a door makes its own types of a file that has none."""
    return door == INSERT and format_of(source_in(area)[0]) != "parquet"


def read_by_ours(door: str, area: Path, reader: str, session: Callable[[Lake], Any] | None = None) -> Verdict:
    """Compare what a reader of ours says of the table behind a door with what DuckDB says of it."""
    catalog = _catalog(door, area)
    try:
        with Lake.connect(catalog.sqlalchemy_url) as lake:
            rows = session(lake).read("t").toArrow() if session else lake.read_arrow("t")
    except Exception as error:  # noqa: BLE001 - what users would see
        return Outcome.SHUT, f"{reader}: {type(error).__name__}: {error}"
    with open_lake(catalog) as duck:
        try:
            reason = other_arrow(duck, rows, "t")
        except (duckdb.Error, pa.ArrowException, TypeError) as error:  # no JSON of some variants
            reason = f"not comparable: {_first(error)}"
    return (Outcome.OTHER, f"{reader}: {reason}") if reason else (Outcome.SAME, "")


def _first(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0]}"


def _catalog(door: str, area: Path) -> CatalogDatabase:
    folder = _folder(door, area)
    return CatalogDatabase("sqlite", str(folder / "catalog.sqlite"), f"{folder / 'data'}/")


def _folder(door: str, area: Path) -> Path:
    return area / door.replace(" ", "_").replace("'", "")


def serve_plain() -> Callable[..., Any]:
    """Return what a process without Spark does."""
    tasks = {task.__name__: task for task in (read_by_duckdb, read_by_pyarrow, through, stored, read_by_ours)}

    def do(name: str, *arguments: Any) -> Any:
        if name in ("read_by_duckdb", "read_by_pyarrow"):
            try:
                return tasks[name](*arguments), ""
            except Exception as error:  # noqa: BLE001 - whatever it says
                return None, _first(error)
        return tasks[name](*arguments)

    return do


def serve_spark() -> Callable[..., Any]:
    """Return what a process with one Spark session for all its files does."""
    from airflow_provider_ducklake.lake.writes.session import LakeSession  # noqa: PLC0415 - PySpark
    from tests.corpora.spark import local_session  # noqa: PLC0415 - PySpark

    spark = local_session()

    def do(name: str, *arguments: Any) -> Any:
        try:
            return {"through": through, "read_by_ours": read_by_ours}[name](
                *arguments, session=lambda lake: LakeSession(spark, lake)
            )
        finally:
            try:
                spark.sparkContext._jvm.System.nanoTime()
            except Exception:  # noqa: BLE001 - of Py4J or of the socket
                code = spark.sparkContext._gateway.proc.wait(10)
                print(f"the JVM ended: {_JVM_ENDS.get(code, f'exit code {code}')}", flush=True)
                os._exit(1)  # else all files to come would fail, too

    return do


_JVM_ENDS = {50: "an uncaught exception", 51: "an uncaught exception", 52: "out of memory"}  # of Spark
