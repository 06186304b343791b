"""Clean-up of a lake on S3, played by a server in this process: through fsspec and by Arrow alone."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pyarrow as pa
import pytest
import s3fs

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import StorageError
from airflow_provider_ducklake.lake.storage.files.filesystem import bucket_and_key, exists, write_bytes
from airflow_provider_ducklake.lake.storage.files.listing import Deletion, delete_files, list_files
from tests.interop.lakes import alone
from tests.reference import s3
from tests.reference.s3_proxy import Fault, Refuse, Request, proxy

BUCKET = "cleanup-bucket"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3.bucket(BUCKET) as url:
        yield url


@pytest.fixture(params=s3.LIBRARIES)
def options(request, endpoint, monkeypatch) -> dict[str, Any]:
    return s3.storage_options(endpoint, request.param, monkeypatch)


def test_files_are_listed_with_their_ages(options):
    root = f"s3://{BUCKET}/listed/"
    for name in ("a.parquet", "x/b c%20.parquet"):
        write_bytes(root + name, b"1234", options)

    found = list(list_files(root, options).files)

    assert sorted((one.name, one.size) for one in found) == [("a.parquet", 4), ("x/b c%20.parquet", 4)]
    now = datetime.now(UTC)
    assert all(abs(now - one.changed_at) < timedelta(minutes=1) for one in found)
    assert list(list_files(f"s3://{BUCKET}/nothing/", options).files) == []


def test_the_name_of_an_access_point_has_a_slash():
    arn = "arn:aws:s3:eu-west-1:123456789012:accesspoint/lakes"
    filesystem = s3fs.S3FileSystem(anon=True)

    assert bucket_and_key(filesystem, f"{arn}/lake/a.parquet?versionId=1") == (
        arn,
        "lake/a.parquet?versionId=1",
    )
    assert bucket_and_key(filesystem, "bucket/lake/") == ("bucket", "lake/")
    assert bucket_and_key(filesystem, "bucket/") == ("bucket", "")


@pytest.mark.parametrize("options", ["fsspec"], indirect=True)  # Arrow does not tell
def test_a_missing_bucket_is_not_listed_as_an_empty_one(options):
    with pytest.raises(StorageError, match="the bucket does not exist"):
        list(list_files("s3://no-such-bucket/lake/", options).files)


def test_no_name_is_taken_for_a_pattern(options):
    root = f"s3://{BUCKET}/patterns/"
    for name in ("a*.parquet", "a1.parquet", "a[1].parquet", "a?.parquet", "ab.parquet"):
        write_bytes(root + name, b"x", options)

    done = delete_files([f"{root}a*.parquet", f"{root}a[1].parquet", f"{root}gone.parquet"], options)

    assert [one.error for one in done[:2]] == [None, None]
    assert not exists(f"{root}a*.parquet", options)
    assert sorted(one.name for one in list_files(root, options).files) == [
        "a1.parquet",
        "a?.parquet",
        "ab.parquet",
    ]


def test_what_one_bucket_refuses_does_not_keep_the_files_of_another(options):
    path = f"s3://{BUCKET}/refused/a.parquet"
    write_bytes(path, b"x", options)

    missing, done = delete_files(["s3://no-such-bucket/a.parquet", path], options)

    assert done == Deletion(path, done.was_there)
    assert missing.path == "s3://no-such-bucket/a.parquet"
    assert missing.error is not None or missing.was_there is False
    assert not exists(path, options)


def test_a_lake_is_cleaned_up(options, tmp_path, request):
    root = f"s3://{BUCKET}/{request.node.callspec.id}/"
    rows = pa.table({"i": pa.array(range(20), pa.int64())})
    with Lake.create(f"sqlite:///{tmp_path}/lake.sqlite", root, storage_options=options) as lake:
        with lake.transaction() as tx:
            tx.create_table("t", {"i": "int64"})
            tx.append_arrow("t", rows)
        alone(lake).truncate("t")
        lake.append_arrow("t", rows)
        write_bytes(f"{root}main/t/orphan.parquet", b"PAR1", options)
        lake.expire_snapshots(keep_last=1)
        time.sleep(1.1)  # S3 counts whole seconds

        (old,) = lake.cleanup_old_files(older_than=timedelta(0)).deleted
        planned = lake.delete_orphaned_files(older_than=timedelta(0), dry_run=True)
        done = lake.delete_orphaned_files(older_than=timedelta(0))

        assert planned.deleted == done.deleted == (f"{root}main/t/orphan.parquet",)
        assert not exists(old, options)
        assert lake.read_arrow("t").num_rows == 20
        assert lake.delete_orphaned_files(older_than=timedelta(0)).deleted == ()


def test_unfinished_uploads_are_dropped(endpoint, monkeypatch, tmp_path):
    options = s3.storage_options(endpoint, "fsspec", monkeypatch)
    keys = {"aws_access_key_id": "id", "aws_secret_access_key": s3.SECRET, "region_name": "us-east-1"}
    client = boto3.client("s3", endpoint_url=endpoint, **keys)
    root = f"s3://{BUCKET}/uploads/"
    for name in ("uploads/main/t/big.parquet", "uploads/main/t/notes.txt", "elsewhere/big.parquet"):
        begun = client.create_multipart_upload(Bucket=BUCKET, Key=name)
        part = {"Bucket": BUCKET, "Key": name, "UploadId": begun["UploadId"], "PartNumber": 1}
        client.upload_part(**part, Body=b"x" * 5 * 2**20)
    with Lake.create(f"sqlite:///{tmp_path}/lake.sqlite", root, storage_options=options) as lake:
        time.sleep(1.1)  # S3 counts whole seconds

        young = lake.delete_orphaned_files(older_than=timedelta(days=20 * 365))  # moto's began in 2010
        planned = lake.delete_orphaned_files(older_than=timedelta(0), dry_run=True)
        done = lake.delete_orphaned_files(older_than=timedelta(0))

        assert young.uploads == ()
        assert planned.uploads == done.uploads == (f"{root}main/t/big.parquet",)
        assert lake.delete_orphaned_files(older_than=timedelta(0)).uploads == ()
    left = {one["Key"] for one in client.list_multipart_uploads(Bucket=BUCKET)["Uploads"]}
    assert left == {"uploads/main/t/notes.txt", "elsewhere/big.parquet"}


def test_who_may_not_list_uploads_still_deletes_orphans(endpoint, monkeypatch, tmp_path, caplog):
    options = s3.storage_options(endpoint, "fsspec", monkeypatch)
    root = f"s3://{BUCKET}/unlisted/"

    def refuse(request: Request) -> Fault:
        return Refuse(403, "AccessDenied") if request.operation == "ListMultipartUploads" else None

    with proxy(endpoint, refuse) as url:
        options["endpoint_url"] = url
        with Lake.create(f"sqlite:///{tmp_path}/lake.sqlite", root, storage_options=options) as lake:
            write_bytes(f"{root}main/t/orphan.parquet", b"PAR1", options)
            time.sleep(1.1)  # S3 counts whole seconds

            done = lake.delete_orphaned_files(older_than=timedelta(0))

    assert done.deleted == (f"{root}main/t/orphan.parquet",)
    assert "Cannot list uploads below" in caplog.text
    assert "s3:ListBucketMultipartUploads" in caplog.text
