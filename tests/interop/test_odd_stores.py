"""Lakes on S3 as they are found: odd names, spellings, two stores, keys that expire, listings that lie."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import InvalidInputError, StorageError
from airflow_provider_ducklake.lake.storage.files.filesystem import (
    exists,
    file_sizes,
    read_bytes,
    write_bytes,
)
from tests.interop.lakes import alone
from tests.interop.test_add_delta_table import RECORDED
from tests.interop.test_cleanup import run_sql
from tests.reference import s3
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import load_extension
from tests.reference.s3_proxy import Body, Fault, Refuse, Request, proxy

BUCKET = "odd-stores"
NOW = timedelta(0)
ODD = [
    "a b",
    "50%",
    "a%20b",
    "x+y",
    "#1",
    "why?",
    "ü ñ 東",
    "k=v",
    "a&b",
    "dots..",
    "'",
    '"',
    "[x]*",
    ";:@$,",
]


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3.bucket(BUCKET) as url:
        yield url


@pytest.fixture
def options(endpoint, monkeypatch) -> dict[str, Any]:
    return s3.storage_options(endpoint, "fsspec", monkeypatch)


@contextmanager
def new_lake(catalog: CatalogDatabase, root: str, options: dict[str, Any]) -> Iterator[Lake]:
    with Lake.create(catalog.sqlalchemy_url, root, storage_options=options, foreign_files=True) as lake:
        lake.set_option("data_inlining_row_limit", 0)
        yield lake


def numbers(*values: int) -> pa.Table:
    return pa.table({"i": pa.array(values, pa.int64())})


def read_by_duckdb(catalog: CatalogDatabase, endpoint: str, query: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(config={"allow_unsigned_extensions": True}) as connection:
        for extension in ("httpfs", "ducklake", "sqlite_scanner"):
            load_extension(connection, extension)
        connection.execute(
            f"CREATE SECRET (TYPE s3, KEY_ID 'id', SECRET '{s3.SECRET}', URL_STYLE 'path', USE_SSL false, "
            f"ENDPOINT '{endpoint.removeprefix('http://')}')"
        )
        connection.execute(f"ATTACH '{catalog.attach_string}' AS lake; USE lake")
        return connection.execute(query).fetchall()


def test_names_of_any_kind_come_back_from_a_store(sqlite_catalog, options, endpoint):
    root = f"s3://{BUCKET}/names %2B/"
    keys = pa.table({"k": ODD, "i": pa.array(range(len(ODD)), pa.int64())})
    with new_lake(sqlite_catalog, root, options) as lake:
        with lake.transaction() as tx:
            tx.create_schema("o dd+?#%")
            tx.create_table('"o dd+?#%"."t=1&é."', {"k": "varchar", "i": "int64"}, ["k"])
            tx.append_arrow('"o dd+?#%"."t=1&é."', keys)

        found = lake.read_arrow('"o dd+?#%"."t=1&é."')

        assert sorted(zip(*found.to_pydict().values(), strict=True)) == sorted(
            zip(ODD, count(), strict=False)
        )
        rows = read_by_duckdb(sqlite_catalog, endpoint, 'SELECT k, i FROM "o dd+?#%"."t=1&é." ORDER BY i')
        assert rows == list(zip(ODD, count(), strict=False))
        assert lake.verify() == []
        time.sleep(1.1)  # S3 counts whole seconds
        assert lake.delete_orphaned_files(older_than=NOW).deleted == ()
        with lake.transaction() as tx:
            tx.truncate('"o dd+?#%"."t=1&é."')
        lake.expire_snapshots(keep_last=1)
        assert len(lake.cleanup_old_files(older_than=NOW).deleted) == len(ODD)
        assert [one for one in file_sizes(root, options) if one.endswith(".parquet")] == []


def respell(catalog: CatalogDatabase, kind: str, scheme: str, root: str) -> None:
    """Have the catalog name files as another client does, by absolute paths of another scheme."""
    above = root.replace("s3://", f"{scheme}://")
    statement = (
        f"UPDATE ducklake_{kind} SET path = :above || path, path_is_relative = 0 WHERE path_is_relative"
    )
    run_sql(catalog, statement, above=above)


@pytest.mark.parametrize("scheme", ["s3a", "s3n"])
def test_one_file_is_the_same_by_each_scheme(sqlite_catalog, options, scheme):
    root = f"s3://{BUCKET}/{scheme}/"
    with new_lake(sqlite_catalog, root, options) as lake:
        alone(lake).create_table("t", {"i": "int64"})
        lake.append_arrow("t", numbers(1, 2))
        respell(sqlite_catalog, "data_file", scheme, f"{root}main/t/")
        lake.append_arrow("t", numbers(3))
        time.sleep(1.1)  # S3 counts whole seconds

        assert sorted(lake.read_arrow("t")["i"].to_pylist()) == [1, 2, 3]
        assert lake.verify() == []
        assert lake.delete_orphaned_files(older_than=NOW).deleted == ()
        alone(lake).delete_rows("t", "i = 1")
        assert sorted(lake.read_arrow("t")["i"].to_pylist()) == [2, 3]
        alone(lake).truncate("t")
        lake.expire_snapshots(keep_last=1)
        respell(sqlite_catalog, "files_scheduled_for_deletion", scheme, root)
        time.sleep(1.1)
        assert lake.delete_orphaned_files(older_than=NOW).deleted == ()
        done = lake.cleanup_old_files(older_than=NOW)
        assert (len(done.deleted), done.failures) == (3, ())
        assert [one for one in file_sizes(root, options) if one.endswith(".parquet")] == []


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_a_lake_on_disk_takes_files_of_a_store(sqlite_catalog, options, endpoint, tmp_path, scheme):
    pq.write_table(numbers(1, 2), tmp_path / "in.parquet")
    path = f"{scheme}://{BUCKET}/landing/a b+{scheme}.parquet"
    write_bytes(path, (tmp_path / "in.parquet").read_bytes(), options)
    with new_lake(sqlite_catalog, sqlite_catalog.data_path, options) as lake:
        with lake.transaction() as tx:
            tx.create_table("t", {"i": "int64"})
            tx.append_arrow("t", numbers(3))
            tx.add_data_files("t", [path])

        assert sorted(lake.read_arrow("t")["i"].to_pylist()) == [1, 2, 3]
        assert lake.verify() == []
        if scheme == "s3":
            rows = read_by_duckdb(sqlite_catalog, endpoint, "SELECT i FROM t ORDER BY i")
            assert rows == [(1,), (2,), (3,)]
        alone(lake).delete_rows("t", "i < 2")
        assert sorted(lake.read_arrow("t")["i"].to_pylist()) == [2, 3]
        assert lake.delete_orphaned_files(older_than=NOW).deleted == ()
        alone(lake).drop_table("t")
        lake.expire_snapshots(keep_last=1)
        assert lake.cleanup_old_files(older_than=NOW).failures == ()
        assert not exists(path, options)


def test_a_lake_in_a_store_takes_no_local_files(sqlite_catalog, options, tmp_path):
    pq.write_table(numbers(1), tmp_path / "in.parquet")
    with new_lake(sqlite_catalog, f"s3://{BUCKET}/store-only/", options) as lake:
        alone(lake).create_table("t", {"i": "int64"})

        with pytest.raises(InvalidInputError, match="local path"), lake.transaction() as tx:
            tx.add_data_files("t", [str(tmp_path / "in.parquet")])


EXPIRED = Refuse(400, "ExpiredToken", "The provided token has expired.")


def without_one(lake: Lake) -> None:
    alone(lake).delete_rows("t", "i = 1")


STEPS: dict[str, Callable[[Lake], object]] = {
    "append": lambda lake: lake.append_arrow("t", numbers(3)),
    "delete": without_one,
    "read": lambda lake: lake.read_arrow("t"),
    "clean up": lambda lake: lake.cleanup_old_files(older_than=NOW),
    "orphans": lambda lake: lake.delete_orphaned_files(older_than=NOW),
}


@pytest.mark.parametrize("step", STEPS)
def test_keys_that_expire_in_the_middle_are_told_and_the_lake_stays_whole(
    sqlite_catalog, options, endpoint, step
):
    """They expire after each number of requests in turn, until the step needs no more than that."""
    root = f"s3://{BUCKET}/expiring {step}/"
    with new_lake(sqlite_catalog, root, options) as lake:
        for name in ("t", "dropped"):
            with lake.transaction() as tx:
                tx.create_table(name, {"i": "int64"})
                tx.append_arrow(name, numbers(1, 2))
        alone(lake).drop_table("dropped")
        lake.expire_snapshots(keep_last=1)
    with new_lake_behind(sqlite_catalog, options, endpoint) as (lake, left):
        for granted in range(30):
            left[0] = granted
            try:
                failures = getattr(STEPS[step](lake), "failures", ())
            except StorageError as error:
                failures = ((root, str(error)),)
            left[0] = 1 << 30
            if not failures:
                break
            assert all("expired" in reason for _, reason in failures)
            assert sorted(lake.read_arrow("t")["i"].to_pylist()) == [1, 2]
            assert lake.verify() == []
        else:
            pytest.fail("each number of requests was too few")
        assert lake.verify() == []


@contextmanager
def new_lake_behind(
    catalog: CatalogDatabase, options: dict[str, Any], endpoint: str
) -> Iterator[tuple[Lake, list[int]]]:
    """Yield a lake, and how many requests the store still grants it."""
    left = [1 << 30]

    def fault(_: Request) -> Fault:
        left[0] -= 1
        return None if left[0] >= 0 else EXPIRED

    with proxy(endpoint, fault) as url:
        behind = {**options, "endpoint_url": url}
        with closing(Lake.connect(catalog.sqlalchemy_url, storage_options=behind)) as lake:
            yield lake, left


LISTED = (
    "<Contents><Key>{key}</Key><LastModified>2020-01-01T00:00:00.000Z</LastModified>"
    "<Size>700</Size></Contents>"
)


def lying(root: str, names: list[str]) -> Body:
    """Return a listing in which all files are old."""
    prefix = root.removeprefix(f"s3://{BUCKET}/")
    objects = "".join(LISTED.format(key=prefix + name) for name in names)
    return Body(f"<ListBucketResult><IsTruncated>false</IsTruncated>{objects}</ListBucketResult>".encode())


def test_a_listing_that_lies_costs_no_file_that_the_catalog_names(sqlite_catalog, options, endpoint):
    """It shows files that are gone, hides others, and says of new ones that they are old."""
    root = f"s3://{BUCKET}/lying/"
    shown: list[str] = []

    def fault(request: Request) -> Fault:
        is_list = request.operation == "ListObjectsV2" and "max-keys" not in request.query
        return lying(root, shown) if is_list else None

    with proxy(endpoint, fault) as url:
        behind = {**options, "endpoint_url": url}
        with new_lake(sqlite_catalog, root, behind) as lake:
            alone(lake).create_table("t", {"i": "int64"})
            for number in range(3):
                lake.append_arrow("t", numbers(number))
            files = [name for name in file_sizes(root, options) if name.endswith(".parquet")]
            write_bytes(f"{root}main/t/hidden.parquet", b"PAR1", options)
            shown += [*files[:2], "main/t/gone.parquet"]

            done = lake.delete_orphaned_files(older_than=NOW)

            assert done.deleted == (f"{root}main/t/gone.parquet",)
            assert sorted(lake.read_arrow("t")["i"].to_pylist()) == [0, 1, 2]
            assert lake.verify() == []
    assert read_bytes(f"{root}main/t/hidden.parquet", options) == b"PAR1"


# Iceberg and Delta tables on S3, read with the options of the lake's connection.


@pytest.fixture
def lake(sqlite_catalog, options):
    root = f"s3://{BUCKET}/lake-{Path(sqlite_catalog.data_path).parent.name}/"
    with Lake.create(
        sqlite_catalog.sqlalchemy_url, root, storage_options=options, foreign_files=True
    ) as lake:
        yield lake


def test_a_delta_table_with_vectors_is_added_and_its_files_are_deleted_in_the_end(
    lake, sqlite_catalog, endpoint, options
):
    for path in sorted((RECORDED / "parts").rglob("*")):
        if path.is_file():
            name = path.relative_to(RECORDED).as_posix()
            write_bytes(f"s3://{BUCKET}/delta/{name}", path.read_bytes(), options)

    files = alone(lake).add_table("t", f"s3://{BUCKET}/delta/parts", "delta", create_table=True)

    assert sorted(lake.read_arrow("t")["id"].to_pylist()) == [1, 4]
    assert read_by_duckdb(sqlite_catalog, endpoint, "SELECT id FROM t ORDER BY id") == [(1,), (4,)]
    assert lake.verify() == []
    alone(lake).drop_table("t")
    lake.expire_snapshots(keep_last=1)
    done = lake.cleanup_old_files(older_than=timedelta(0))
    assert (len(done.deleted), done.failures) == (4, ())
    assert not any(exists(file.path, options) for file in files)


def test_an_iceberg_table_is_found_by_its_catalog(lake, sqlite_catalog, endpoint, options, tmp_path):
    catalog = {
        "name": "theirs",
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"s3://{BUCKET}/warehouse",
        "s3.endpoint": endpoint,
        "s3.access-key-id": options["key"],
        "s3.secret-access-key": options["secret"],
    }
    theirs = SqlCatalog(**catalog)
    theirs.create_namespace("sales")
    rows = pa.table({"id": [1, 2, 3], "name": ["a b", "x/y", None]})
    table = theirs.create_table("sales.orders", rows.schema)
    with table.update_spec() as spec:
        spec.add_identity("name")
    table.append(rows)

    lake.add_table("t", "sales.orders", "iceberg", catalog=catalog, create_table=True)

    assert sorted(lake.read_arrow("t")["id"].to_pylist()) == [1, 2, 3]
    found = read_by_duckdb(sqlite_catalog, endpoint, "SELECT * FROM t ORDER BY id")
    assert found == [(1, "a b"), (2, "x/y"), (3, None)]
    assert lake.verify() == []


# What a data path of very many objects costs: the clean-up of orphans lists them, and nothing else does.


MANY = "many-objects"
PAGES = {"ci": 100, "full": 1_000}
ON_A_PAGE = 1_000
OBJECT = (
    "<Contents><Key>lake/main/t/k={page}/{name}</Key><LastModified>2020-01-01T00:00:00.000Z</LastModified>\
<ETag>x</ETag><Size>700</Size><StorageClass>STANDARD</StorageClass></Contents>"
)
ROOT = Path(__file__).parents[2]

LIST = """
import json, logging, resource, sys
from datetime import timedelta
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.storage.files.listing import list_files

logging.basicConfig(level=logging.WARNING)
logging.getLogger("airflow_provider_ducklake").setLevel(logging.INFO)
catalog, options = sys.argv[1], json.loads(sys.argv[2])
with Lake.connect(catalog, storage_options=options) as lake:
    assert len(list(list_files(lake.data_path.replace("/lake/", "/few/"), options).files)) == 1_000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = lake.delete_orphaned_files(older_than=timedelta(days=1), dry_run=True)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"mebibytes": (after - before) / 1024, "orphans": len(found.deleted)}))
"""


class _Lists(BaseHTTPRequestHandler):
    """Plays a bucket with pages of objects: on each, one is an orphan and the others no lake's files."""

    protocol_version = "HTTP/1.1"
    pages: int

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        page = int(query.get("continuation-token", ["0"])[0])
        names = ["ducklake-orphan.parquet", *(f"part-{n:05d}.csv" for n in range(ON_A_PAGE - 1))]
        prefix = query["prefix"][0]
        more = prefix == "lake/" and page + 1 < self.pages
        token = f"<NextContinuationToken>{page + 1}</NextContinuationToken>" if more else ""
        objects = "".join(OBJECT.format(prefix=prefix, page=page, name=name) for name in names)
        body = (
            '<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<IsTruncated>{str(more).lower()}</IsTruncated>{token}{objects}</ListBucketResult>"
        )
        text = body.encode() if "list-type" in query else b"<ListMultipartUploadsResult/>"
        self.send_response(200)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_arguments: object) -> None:
        pass


@contextmanager
def many_objects(pages: int) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Lists,), {"pages": pages}))
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.databases
def test_objects_are_listed_without_being_kept(tmp_path, pytestconfig):
    pages = PAGES[pytestconfig.option.size]
    catalog = f"sqlite:///{tmp_path}/lake.sqlite"
    with many_objects(pages) as url:
        options = {"key": "id", "secret": s3.SECRET, "endpoint_url": url}
        Lake.create(catalog, f"s3://{MANY}/lake/", storage_options=options).close()
        done = subprocess.run(
            [sys.executable, "-c", LIST, catalog, json.dumps(options)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        )

    found = json.loads(done.stdout)
    assert found["orphans"] == pages
    assert found["mebibytes"] < 20
    assert f"Listed 100000 files below s3://{MANY}/lake/ so far" in done.stderr
    assert s3.SECRET not in done.stderr


def is_listing(request: Request) -> bool:
    """Whether a request looks at more than whether there is anything."""
    return (
        request.operation == "ListObjectsV2" and request.method == "GET" and "max-keys" not in request.query
    )


@pytest.mark.databases
def test_no_other_verb_lists_the_bucket(tmp_path, monkeypatch):
    seen: list[Request] = []
    rows = pa.table({"i": pa.array(range(30), pa.int64())})
    with s3.bucket(MANY) as store, proxy(store, seen.append) as url:
        options = s3.storage_options(url, "fsspec", monkeypatch)
        with Lake.create(
            f"sqlite:///{tmp_path}/lake.sqlite", f"s3://{MANY}/lake/", storage_options=options
        ) as lake:
            alone(lake).create_table("t", {"i": "int64"})
            for _ in range(3):
                lake.append_arrow("t", rows)
            alone(lake).delete_rows("t", "i < 3")
            then = lake.current_snapshot().id
            alone(lake).truncate("t")
            lake.restore("t", at=then)
            lake.expire_snapshots(keep_last=1)
            lake.cleanup_old_files(older_than=timedelta(0))
            assert lake.read_arrow("t").num_rows == 81
            assert lake.verify() == []

    assert len(seen) > 20
    assert [one for one in seen if is_listing(one)] == []
