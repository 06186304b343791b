"""The same surface over S3, played by a server in this process: through fsspec and by Arrow alone."""

import itertools
import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import boto3
import pyarrow as pa
import pyarrow.fs as pafs
import pytest
import s3fs

from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import StorageError
from airflow_provider_ducklake.lake.format.files import LiveDataFile
from airflow_provider_ducklake.lake.format.schema import new_columns
from airflow_provider_ducklake.lake.format.snapshots import DataFileId, SnapshotId
from airflow_provider_ducklake.lake.planning.writing.write import ParquetSettings
from airflow_provider_ducklake.lake.storage.files.filesystem import (
    Location,
    bucket_and_key,
    check_writable,
    delete_file,
    exists,
    file_sizes,
    open_filesystem,
    open_input,
    read_bytes,
    write_bytes,
)
from airflow_provider_ducklake.lake.storage.files.listing import (
    Deletion,
    delete_files,
    delete_tree,
    list_files,
)
from airflow_provider_ducklake.lake.storage.files.writing import OutputFile, copy_file
from airflow_provider_ducklake.lake.storage.parquet.footer import read_footer
from airflow_provider_ducklake.lake.storage.parquet.reader import read_data_file
from airflow_provider_ducklake.lake.storage.parquet.writer import RollingWriter
from tests.interop.lakes import alone
from tests.reference import s3
from tests.reference.s3_proxy import Body, Drop, Fault, Refuse, Request, proxy

BUCKET = "lake-bucket"
SCHEMA = new_columns({"id": "int64", "text": "varchar"})


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3.bucket(BUCKET) as url:
        yield url


@pytest.fixture(params=s3.LIBRARIES)
def options(request, endpoint, monkeypatch) -> dict[str, Any]:
    return s3.storage_options(endpoint, request.param, monkeypatch)


def keys(options: dict, prefix: str) -> list[str]:
    location = open_filesystem(f"s3://{BUCKET}/{prefix}", options)
    selector = pafs.FileSelector(location.path, recursive=True, allow_not_found=True)
    return [info.path for info in location.filesystem.get_file_info(selector) if info.is_file]


def test_bytes_come_back_from_odd_keys(options):
    path = f"s3://{BUCKET}/odd/a b%20ü=1/file"

    write_bytes(path, b"content", options)

    assert read_bytes(path, options) == b"content"
    assert exists(path, options)
    assert delete_file(path, options)
    assert not exists(path, options)


def test_a_prefix_is_deleted_whole_and_its_neighbours_stay(options):
    for key in ("tree/x/1", "tree/2", "tree2/3"):
        write_bytes(f"s3://{BUCKET}/del/{key}", b"x", options)

    delete_tree(f"s3://{BUCKET}/del/tree/", options)
    delete_tree(f"s3://{BUCKET}/del/gone/", options)

    assert keys(options, "del") == [f"{BUCKET}/del/tree2/3"]


def test_a_writable_place_is_left_as_it_was(options):
    check_writable(f"s3://{BUCKET}/probe/", options)

    assert keys(options, "probe") == []


def test_a_missing_bucket_is_an_error_that_names_it_and_no_secret(options):
    with pytest.raises(StorageError, match="s3://no-such-bucket/lake/") as caught:
        check_writable("s3://no-such-bucket/lake/", options)

    assert "hunter2" not in str(caught.value)


@pytest.fixture
def locate(options):
    def locate(path: str) -> Location:
        return open_filesystem(path, options)

    return locate


def rows(number: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {"id": list(range(number)), "text": [f"text {n}" * 50 for n in range(number)]}
    )


def test_data_files_are_written_and_read(request, locate):
    numbers = count()
    prefix = f"s3://{BUCKET}/{request.node.name}"
    settings = ParquetSettings(row_group_rows=500, target_file_size_bytes=5000)

    with RollingWriter(SCHEMA, lambda: f"{prefix}/{next(numbers)}", settings, locate=locate) as writer:
        for _ in range(4):
            writer.write(rows(500))

    assert len(writer.files) > 1
    for file in writer.files:
        assert read_footer(locate(file.path), SCHEMA) == file
        live = LiveDataFile(DataFileId(1), file.path, 1, 1, 1, 0, SnapshotId(1))
        read = read_data_file(live, SCHEMA, table="main.t", snapshot_id=SnapshotId(1), locate=locate).cast()
        assert read.num_rows == file.record_count


@pytest.mark.parametrize("size", [10, 30_000_000])  # below and above what one upload part holds
def test_an_aborted_file_is_never_published(request, locate, options, size):
    file = OutputFile(locate(f"s3://{BUCKET}/{request.node.name}/file"))
    file.write(bytes(size))

    file.abort()
    del file

    assert keys(options, request.node.name) == []


def test_an_error_while_writing_leaves_no_object(request, locate, options):
    prefix = f"s3://{BUCKET}/{request.node.name}"

    def write_and_fail() -> None:
        with RollingWriter(
            SCHEMA, lambda: f"{prefix}/file", ParquetSettings(row_group_rows=10), locate=locate
        ) as writer:
            writer.write(rows(100))
            raise KeyError

    with pytest.raises(KeyError):
        write_and_fail()

    assert keys(options, request.node.name) == []


def test_a_missing_object_is_an_error_that_names_it(locate):
    live = LiveDataFile(DataFileId(1), f"s3://{BUCKET}/gone", 1, 1, 1, 0, SnapshotId(1))

    with pytest.raises(StorageError, match=f"s3://{BUCKET}/gone of main.t at snapshot 7"):
        read_data_file(live, SCHEMA, table="main.t", snapshot_id=SnapshotId(7), locate=locate).cast()


def test_what_another_client_writes_is_seen_at_once(options, endpoint):
    prefix = f"s3://{BUCKET}/seen"
    assert keys(options, "seen/x") == []
    write_bytes(f"{prefix}/first", b"x", options)
    keys(options, "seen")

    another = pafs.S3FileSystem(
        access_key="id", secret_key="hunter2hunter2", endpoint_override=endpoint, region="us-east-1"
    )
    with another.open_output_stream(f"{BUCKET}/seen/second") as stream:
        stream.write(b"x")

    assert exists(f"{prefix}/second", options)
    assert len(keys(options, "seen")) == 2
    delete_tree(prefix, options)


def test_an_encrypted_file_is_written_and_read_over_a_store(options):
    def locate(path: str) -> Location:
        return open_filesystem(path, options).of_lake(16)

    rows = pa.table(
        {"id": pa.array(range(1000), pa.int64()), "text": [f"a secret {i % 7}" for i in range(1000)]}
    )
    path = f"s3://{BUCKET}/encrypted/file.parquet"

    with RollingWriter(SCHEMA, lambda: path, ParquetSettings(row_group_rows=300), locate=locate) as writer:
        writer.write(rows)

    (file,) = writer.files
    assert b"secret" not in read_bytes(path, options)
    live = LiveDataFile(
        id=DataFileId(1),
        path=path,
        record_count=1000,
        file_size_bytes=file.file_size_bytes,
        footer_size=file.footer_size,
        row_id_start=0,
        begin_snapshot=SnapshotId(1),
        encryption_key=file.encryption_key,
    )
    read = read_data_file(live, SCHEMA, table="main.t", snapshot_id=SnapshotId(1), locate=locate).cast()
    assert read.to_pylist() == rows.to_pylist()
    keyed = locate(path).with_key(file.encryption_key)
    assert read_footer(keyed, SCHEMA).footer_size == file.footer_size


# Clean-up of a lake on S3, played by a server in this process: through fsspec and by Arrow alone.


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


# Copies within a store, and a restored lake on S3, played by a server in this process.


def test_files_are_copied_within_a_store_and_between_two(options, tmp_path):
    content = b"1234" * 1000
    for name in ("a[1]*.parquet", "k=x%2Fy z/a?.parquet"):
        write_bytes(f"s3://{BUCKET}/from/{name}", content, options)
        places = [f"s3://{BUCKET}/to/{name}", str(tmp_path / name), f"s3://{BUCKET}/back/{name}"]
        ends = [open_filesystem(one, options) for one in (f"s3://{BUCKET}/from/{name}", *places)]
        for source, target in itertools.pairwise(ends):
            copy_file(source, target)
        assert [read_bytes(one, options) for one in places] == [content] * 3
    local = open_filesystem(str(tmp_path / "copies/of/a.parquet"), options)
    copy_file(open_filesystem(str(tmp_path / "a[1]*.parquet"), options), local)
    assert read_bytes(local.uri) == content


@pytest.mark.parametrize("source", ["s3://restore-bucket/none.parquet", "{}/none.parquet"])
@pytest.mark.parametrize("target", ["s3://restore-bucket/copy.parquet", "{}/copy.parquet"])
def test_a_missing_file_leaves_no_copy(options, tmp_path, source, target):
    source, target = source.format(tmp_path), target.format(tmp_path)
    with pytest.raises(StorageError, match="none"):
        copy_file(open_filesystem(source, options), open_filesystem(target, options))
    assert not exists(target, options)


def test_a_lake_on_a_store_is_restored(options, tmp_path):
    data_path = f"s3://{BUCKET}/lake/"
    with Lake.create(f"sqlite:///{tmp_path}/c.sqlite", data_path, storage_options=options) as lake:
        with lake.transaction() as tx:
            tx.create_table("t", {"i": "int64", "k": "varchar"}, ["k"])
            tx.append_arrow("t", pa.table({"i": pa.array(range(40), pa.int64()), "k": ["a/b", "c"] * 20}))
        then = lake.current_snapshot().id
        alone(lake).delete_rows("t", "i < 12")
        alone(lake).drop_table("t")

        (table,) = lake.restore("t", at=then).tables

        assert (table.files_copied, table.rows_returned) == (2, 40)
        assert sorted(lake.read_arrow("t")["i"].to_pylist()) == [*range(40)]
        lake.expire_snapshots(keep_last=1)
        assert lake.verify() == []


# What a store refuses is told apart: rights, keys, regions, clocks, buckets, networks; by both drivers.


GUARDED = "guarded"
FILE = f"s3://{GUARDED}/lake/file"
OPERATIONS: dict[str, Callable[[dict[str, Any]], object]] = {
    "read": lambda store_options: read_bytes(FILE, store_options),
    "open": lambda store_options: open_input(open_filesystem(FILE, store_options)).read(),
    "look": lambda store_options: exists(FILE, store_options),
    "list": lambda store_options: file_sizes(f"s3://{GUARDED}/lake/", store_options),
    "write": lambda store_options: write_bytes(FILE, b"content", store_options),
    "check": lambda store_options: check_writable(f"s3://{GUARDED}/lake/", store_options),
    "delete": lambda store_options: delete_file(FILE, store_options),
}


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    with s3.bucket(GUARDED) as url:
        yield url


@pytest.fixture(params=s3.LIBRARIES)
def library(request) -> str:
    return str(request.param)


@pytest.fixture
def store_options(store, library, monkeypatch) -> dict[str, Any]:
    given = s3.storage_options(store, library, monkeypatch)
    write_bytes(FILE, b"content", given)
    return given


@pytest.fixture
def guarded(store, store_options) -> Iterator[Callable[..., dict[str, Any]]]:
    """Return the options of a new user who may do what is named, where the store asks who one is."""
    iam = boto3.client(
        "iam", endpoint_url=store, region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b"
    )

    def user(*actions: str) -> dict[str, Any]:
        name = f"user{len(iam.list_users()['Users'])}"
        iam.create_user(UserName=name)
        statement = {"Effect": "Allow", "Action": ["s3:ListAllMyBuckets", *actions], "Resource": "*"}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        iam.put_user_policy(UserName=name, PolicyName="given", PolicyDocument=policy)
        key = iam.create_access_key(UserName=name)["AccessKey"]
        _guard(store, 0)
        return {**store_options, "key": key["AccessKeyId"], "secret": key["SecretAccessKey"]}

    yield user
    _guard(store, 1 << 30)


def _guard(store: str, after: int) -> None:
    """Have moto check rights from so many requests on."""
    headers = {"Content-Type": "text/plain"}
    request = urllib.request.Request(
        f"{store}/moto-api/reset-auth", str(after).encode(), headers, method="POST"
    )
    urllib.request.urlopen(request).close()


LACKING = [
    ("read", ["s3:ListBucket"], "s3:GetObject"),
    ("open", ["s3:ListBucket"], "s3:GetObject"),
    ("list", ["s3:GetObject"], "s3:ListBucket"),
    ("write", ["s3:GetObject", "s3:ListBucket"], "s3:PutObject"),
    ("check", ["s3:GetObject", "s3:ListBucket"], "s3:PutObject"),
    ("delete", ["s3:GetObject", "s3:ListBucket", "s3:PutObject"], "s3:DeleteObject"),
]


@pytest.mark.parametrize(("operation", "granted", "missing"), LACKING)
def test_the_missing_right_is_named(guarded, operation, granted, missing):
    store_options = guarded(*granted)

    with pytest.raises(StorageError) as caught:
        OPERATIONS[operation](store_options)

    assert "denies it" in str(caught.value)
    assert missing in str(caught.value)
    assert store_options["secret"] not in str(caught.value)


@pytest.mark.parametrize("wrong", ["key", "secret"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_wrong_keys_are_not_a_missing_file(guarded, operation, wrong):
    store_options = {**guarded("s3:*"), wrong: "AKIANOBODY"}

    with pytest.raises(StorageError, match=r"credentials|access key|store denies it"):
        OPERATIONS[operation](store_options)


REFUSALS = {
    "region": (Refuse(400, "AuthorizationHeaderMalformed"), "region"),
    "expired": (Refuse(400, "ExpiredToken", "The provided token has expired."), "expired"),
    "clock": (Refuse(403, "RequestTimeTooSkewed"), "clock|denies"),
    "bucket": (Refuse(404, "NoSuchBucket"), "bucket"),
}
FASTER = {"config_kwargs": {"retries": {"max_attempts": 1}, "connect_timeout": 1, "read_timeout": 1}}


TOLD = [
    (name, operation)
    for name in REFUSALS
    for operation in ("read", "list", "write")
    if (name, operation) != ("bucket", "list")  # a missing bucket is listed as an empty one
]


@pytest.mark.parametrize(("name", "operation"), TOLD)
def test_a_refusal_is_told_from_others(store, store_options, name, operation):
    refusal, said = REFUSALS[name]
    with proxy(store, lambda _: refusal) as url, pytest.raises(StorageError, match=said):
        OPERATIONS[operation]({**store_options, **FASTER, "endpoint_url": url})


@pytest.mark.parametrize("library", ["fsspec"], indirect=True)  # Arrow tries for minutes
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_store_that_does_not_answer_is_no_missing_file(store, store_options, operation):
    with proxy(store, lambda _: Drop()) as url, pytest.raises(StorageError, match="does not answer"):
        OPERATIONS[operation]({**store_options, **FASTER, "endpoint_url": url})


ONE_STAYS = b"""<?xml version="1.0"?><DeleteResult><Error><Key>lake/kept</Key><Code>AccessDenied</Code>
<Message>Access Denied</Message></Error></DeleteResult>"""


def test_what_a_bulk_deletion_leaves_is_said(store, store_options):
    """S3 answers with 200 and names the objects that stay; s3fs's own deletion is silent about them."""
    for name in ("gone", "kept"):
        write_bytes(f"s3://{GUARDED}/lake/{name}", b"x", store_options)

    def keeps_one(request: Request) -> Fault:
        if request.operation == "DeleteObjects":
            return Body(ONE_STAYS)
        is_kept = request.method == "DELETE" and request.key == "lake/kept"
        return Refuse(403, "AccessDenied") if is_kept else None

    with proxy(store, keeps_one) as url:
        behind = {**store_options, "endpoint_url": url}
        done = delete_files([f"s3://{GUARDED}/lake/gone", f"s3://{GUARDED}/lake/kept"], behind)
        with pytest.raises(StorageError, match="lake/kept"):
            delete_tree(f"s3://{GUARDED}/lake/", behind)

    assert done[0].error is None
    assert "denies it (s3:DeleteObject)" in (done[1].error or "")
