"""What a data path of very many objects costs: the clean-up of orphans lists them, and nothing else does."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa
import pytest

from airflow_provider_ducklake.lake.catalog.lake import Lake
from tests.interop.lakes import alone
from tests.reference import s3
from tests.reference.s3_proxy import Request, proxy

pytestmark = pytest.mark.databases

BUCKET = "many-objects"
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


def test_objects_are_listed_without_being_kept(tmp_path, pytestconfig):
    pages = PAGES[pytestconfig.option.size]
    catalog = f"sqlite:///{tmp_path}/lake.sqlite"
    with many_objects(pages) as url:
        options = {"key": "id", "secret": s3.SECRET, "endpoint_url": url}
        Lake.create(catalog, f"s3://{BUCKET}/lake/", storage_options=options).close()
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
    assert f"Listed 100000 files below s3://{BUCKET}/lake/ so far" in done.stderr
    assert s3.SECRET not in done.stderr


def is_listing(request: Request) -> bool:
    """Whether a request looks at more than whether there is anything."""
    return (
        request.operation == "ListObjectsV2" and request.method == "GET" and "max-keys" not in request.query
    )


def test_no_other_verb_lists_the_bucket(tmp_path, monkeypatch):
    seen: list[Request] = []
    rows = pa.table({"i": pa.array(range(30), pa.int64())})
    with s3.bucket(BUCKET) as store, proxy(store, seen.append) as url:
        options = s3.storage_options(url, "fsspec", monkeypatch)
        with Lake.create(
            f"sqlite:///{tmp_path}/lake.sqlite", f"s3://{BUCKET}/lake/", storage_options=options
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
