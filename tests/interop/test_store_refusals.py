"""What a store refuses is told apart: rights, keys, regions, clocks, buckets, networks; by both drivers."""

import json
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest

from airflow_provider_ducklake.lake.errors import StorageError
from airflow_provider_ducklake.lake.storage.files.filesystem import (
    check_writable,
    delete_file,
    exists,
    file_sizes,
    open_filesystem,
    open_input,
    read_bytes,
    write_bytes,
)
from airflow_provider_ducklake.lake.storage.files.listing import delete_files, delete_tree
from tests.reference import s3
from tests.reference.s3_proxy import Body, Drop, Fault, Refuse, Request, proxy

BUCKET = "guarded"
FILE = f"s3://{BUCKET}/lake/file"
OPERATIONS: dict[str, Callable[[dict[str, Any]], object]] = {
    "read": lambda options: read_bytes(FILE, options),
    "open": lambda options: open_input(open_filesystem(FILE, options)).read(),
    "look": lambda options: exists(FILE, options),
    "list": lambda options: file_sizes(f"s3://{BUCKET}/lake/", options),
    "write": lambda options: write_bytes(FILE, b"content", options),
    "check": lambda options: check_writable(f"s3://{BUCKET}/lake/", options),
    "delete": lambda options: delete_file(FILE, options),
}


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    with s3.bucket(BUCKET) as url:
        yield url


@pytest.fixture(params=s3.LIBRARIES)
def library(request) -> str:
    return str(request.param)


@pytest.fixture
def options(store, library, monkeypatch) -> dict[str, Any]:
    given = s3.storage_options(store, library, monkeypatch)
    write_bytes(FILE, b"content", given)
    return given


@pytest.fixture
def guarded(store, options) -> Iterator[Callable[..., dict[str, Any]]]:
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
        return {**options, "key": key["AccessKeyId"], "secret": key["SecretAccessKey"]}

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
    options = guarded(*granted)

    with pytest.raises(StorageError) as caught:
        OPERATIONS[operation](options)

    assert "denies it" in str(caught.value)
    assert missing in str(caught.value)
    assert options["secret"] not in str(caught.value)


@pytest.mark.parametrize("wrong", ["key", "secret"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_wrong_keys_are_not_a_missing_file(guarded, operation, wrong):
    options = {**guarded("s3:*"), wrong: "AKIANOBODY"}

    with pytest.raises(StorageError, match=r"credentials|access key|store denies it"):
        OPERATIONS[operation](options)


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
def test_a_refusal_is_told_from_others(store, options, name, operation):
    refusal, said = REFUSALS[name]
    with proxy(store, lambda _: refusal) as url, pytest.raises(StorageError, match=said):
        OPERATIONS[operation]({**options, **FASTER, "endpoint_url": url})


@pytest.mark.parametrize("library", ["fsspec"], indirect=True)  # Arrow tries for minutes
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_store_that_does_not_answer_is_no_missing_file(store, options, operation):
    with proxy(store, lambda _: Drop()) as url, pytest.raises(StorageError, match="does not answer"):
        OPERATIONS[operation]({**options, **FASTER, "endpoint_url": url})


ONE_STAYS = b"""<?xml version="1.0"?><DeleteResult><Error><Key>lake/kept</Key><Code>AccessDenied</Code>
<Message>Access Denied</Message></Error></DeleteResult>"""


def test_what_a_bulk_deletion_leaves_is_said(store, options):
    """S3 answers with 200 and names the objects that stay; s3fs's own deletion is silent about them."""
    for name in ("gone", "kept"):
        write_bytes(f"s3://{BUCKET}/lake/{name}", b"x", options)

    def keeps_one(request: Request) -> Fault:
        if request.operation == "DeleteObjects":
            return Body(ONE_STAYS)
        is_kept = request.method == "DELETE" and request.key == "lake/kept"
        return Refuse(403, "AccessDenied") if is_kept else None

    with proxy(store, keeps_one) as url:
        behind = {**options, "endpoint_url": url}
        done = delete_files([f"s3://{BUCKET}/lake/gone", f"s3://{BUCKET}/lake/kept"], behind)
        with pytest.raises(StorageError, match="lake/kept"):
            delete_tree(f"s3://{BUCKET}/lake/", behind)

    assert done[0].error is None
    assert "denies it (s3:DeleteObject)" in (done[1].error or "")
