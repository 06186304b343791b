"""Connections to clouds open the lake's store; what they cannot hand on is refused by name."""

import json
import sys
from typing import Any

import boto3
import pytest

from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.lake.errors import InvalidOptionError
from airflow_provider_ducklake.lake.storage.files.filesystem import exists
from tests.airflow.conftest import SetConnection
from tests.reference import s3

BUCKET = "storage-connection"
KEYFILE = {"type": "service_account", "private_key": "pem-of-this-test", "client_email": "etl@example.com"}
OPTIONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "amazon": (
        {
            "conn_type": "aws",
            "login": "id",
            "password": "x",
            "extra": {"region_name": "eu-west-1", "endpoint_url": "http://minio:9000"},
        },
        {
            "key": "id",
            "secret": "x",
            "endpoint_url": "http://minio:9000",
            "client_kwargs": {"region_name": "eu-west-1"},
        },
    ),
    "amazon, for s3 alone": (
        {
            "conn_type": "aws",
            "extra": {
                "aws_access_key_id": "id",
                "aws_secret_access_key": "x",
                "aws_session_token": "t",
                "endpoint_url": "http://other",
                "service_config": {"s3": {"endpoint_url": "http://minio:9000"}},
                "verify": False,
            },
        },
        {
            "key": "id",
            "secret": "x",
            "token": "t",
            "endpoint_url": "http://minio:9000",
            "client_kwargs": {"verify": False},
        },
    ),
    "amazon, the machine's role": ({"conn_type": "aws"}, {}),
    "google": (
        {
            "conn_type": "google_cloud_platform",
            "extra": {"keyfile_dict": json.dumps(KEYFILE), "project": "p"},
        },
        {"token": KEYFILE, "project": "p"},
    ),
    "google, of an old form": (
        {
            "conn_type": "google_cloud_platform",
            "extra": {"extra__google_cloud_platform__key_path": "/k.json"},
        },
        {"token": "/k.json"},
    ),
    "google, the machine's": ({"conn_type": "google_cloud_platform"}, {"token": "google_default"}),
    "azure, by key": (
        {"conn_type": "wasb", "login": "account", "password": "x"},
        {"account_name": "account", "account_key": "x"},
    ),
    "azure, by signature": (
        {"conn_type": "wasb", "login": "account", "extra": {"sas_token": "https://a.net/?sig=x&se=1"}},
        {"account_name": "account", "sas_token": "sig=x&se=1"},
    ),
    "azure, by client": (
        {
            "conn_type": "wasb",
            "host": "https://account.blob.core.windows.net/",
            "login": "client",
            "password": "x",
            "extra": {"tenant_id": "t"},
        },
        {"account_name": "account", "client_id": "client", "client_secret": "x", "tenant_id": "t"},
    ),
    "azure, by string": (
        {"conn_type": "wasb", "extra": {"connection_string": "AccountName=a;AccountKey=x"}},
        {"connection_string": "AccountName=a;AccountKey=x"},
    ),
}
REFUSED = [
    (None, "'store' does not exist. Create it"),
    ({"conn_type": "postgres"}, "of type 'postgres'. Name one of type aws, google_cloud_platform"),
    (
        {"conn_type": "google_cloud_platform", "extra": {"impersonation_chain": "sa"}},
        "impersonation_chain, which",
    ),
    (
        {"conn_type": "google_cloud_platform", "extra": {"keyfile_dict": "{"}},
        "'store' has a keyfile_dict that is not valid JSON",
    ),
    (
        {"conn_type": "google_cloud_platform", "extra": {"keyfile_dict": "[" * 100_000}},
        "'store' has a keyfile_dict that is not valid JSON",
    ),
    ({"conn_type": "aws", "extra": "[1]"}, "'store' is not a valid JSON object"),
]


@pytest.fixture
def lake_hook(set_connection: SetConnection) -> DuckLakeHook:
    extra = {"catalog_type": "sqlite", "storage_conn_id": "store"}
    return DuckLakeHook(set_connection(conn_type="ducklake", schema="/data/lake.sqlite", extra=extra))


@pytest.mark.parametrize("name", OPTIONS)
def test_a_connection_stands_for_storage_options(lake_hook, set_connection, name):
    fields, options = OPTIONS[name]
    set_connection("store", **fields)

    assert lake_hook.settings().storage_options == options


@pytest.mark.parametrize(("fields", "message"), REFUSED)
def test_what_cannot_be_handed_on_is_refused_by_name(lake_hook, set_connection, fields, message):
    if fields is not None:
        set_connection("store", **fields)

    with pytest.raises(InvalidOptionError, match=rf"\(storage_conn_id\): the .*{message}"):
        lake_hook.settings()


def test_the_lakes_own_options_count_before_it(set_connection):
    set_connection("store", **OPTIONS["amazon"][0])
    own = {"secret": "own", "client_kwargs": {"verify": False}}
    extra = {"catalog_type": "sqlite", "storage_conn_id": "store", "storage_options": own}
    lake = set_connection(conn_type="ducklake", schema="/data/lake.sqlite", extra=extra)

    options = DuckLakeHook(lake).settings().storage_options

    assert (options["key"], options["secret"]) == ("id", "own")
    assert options["client_kwargs"] == {"region_name": "eu-west-1", "verify": False}


def test_a_role_is_taken_on_by_the_amazon_provider(lake_hook, set_connection, monkeypatch):
    with s3.bucket(BUCKET) as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)  # of its token service, too
        keys = {"aws_access_key_id": "id", "aws_secret_access_key": "x", "region_name": "us-east-1"}
        trust = json.dumps({"Version": "2012-10-17", "Statement": []})
        role = boto3.client("iam", **keys).create_role(RoleName="lake", AssumeRolePolicyDocument=trust)
        extra = {"role_arn": role["Role"]["Arn"], "region_name": "us-east-1", "endpoint_url": endpoint}
        set_connection("store", conn_type="aws", login="id", password="x", extra=extra)

        options = lake_hook.settings().storage_options

        assert options["key"] != "id"
        assert options["token"]
        assert not exists(f"s3://{BUCKET}/lake/", options)


def test_without_the_provider_a_role_is_refused(lake_hook, set_connection, monkeypatch):
    monkeypatch.setitem(sys.modules, "airflow.providers.amazon.aws.hooks.base_aws", None)
    set_connection("store", conn_type="aws", extra={"role_arn": "arn:aws:iam::1:role/lake"})

    with pytest.raises(
        InvalidOptionError, match=r"takes on a role or a profile\. Install apache-airflow-providers-amazon"
    ):
        lake_hook.settings()
