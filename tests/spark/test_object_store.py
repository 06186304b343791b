"""How the connection's storage options become settings of Hadoop's S3A, and that they go no further."""

import re

import pytest
from pyspark import SparkConf

from airflow_provider_ducklake.lake.errors import StorageError
from airflow_provider_ducklake.lake.spark.jobs.run import unreadable_request
from airflow_provider_ducklake.lake.spark.sessions.classic import own_settings
from airflow_provider_ducklake.lake.spark.sessions.settings import reach_buckets, s3a_settings
from airflow_provider_ducklake.lake.storage.files.filesystem import address_as_environment, as_environment

PROVIDER = "org.apache.hadoop.fs.s3a."


def flat(options: dict) -> dict[str, str]:
    return {name: value for group in s3a_settings(options) for name, value in group.items()}


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ({}, {}),
        ({"anon": True}, {"aws.credentials.provider": f"{PROVIDER}AnonymousAWSCredentialsProvider"}),
        ({"anon": False}, {}),
        (
            {"key": "a", "secret": "b"},
            {
                "access.key": "a",
                "secret.key": "b",
                "aws.credentials.provider": f"{PROVIDER}SimpleAWSCredentialsProvider",
            },
        ),
        (
            {"key": "a", "secret": "b", "token": "c"},
            {
                "access.key": "a",
                "secret.key": "b",
                "session.token": "c",
                "aws.credentials.provider": f"{PROVIDER}TemporaryAWSCredentialsProvider",
            },
        ),
        (
            {
                "client_kwargs": {
                    "endpoint_url": "https://s3.eu-west-1.amazonaws.com",
                    "region_name": "eu-west-1",
                }
            },
            {
                "endpoint": "https://s3.eu-west-1.amazonaws.com",
                "path.style.access": "false",
                "endpoint.region": "eu-west-1",
            },
        ),
        (
            {"endpoint_url": "http://minio:9000"},
            {"endpoint": "http://minio:9000", "path.style.access": "true"},
        ),
    ],
)
def test_options_of_fsspec_have_their_names_in_s3a(options, settings):
    assert flat(options) == settings


@pytest.mark.classic_only("looks at settings of the JVM")
def test_only_the_lakes_own_buckets_are_set_up_and_no_setting_of_spark_shows_it(spark):
    options = {"key": "a-key", "secret": "a-s3cret", "endpoint_url": "http://minio:9000"}

    reach_buckets(
        spark, ["s3://own-bucket/lake/t/", "s3a://second.bucket/t/", "/data/t/", "gs://other/t/"], options
    )

    hadoop = spark._jsc.hadoopConfiguration()
    for bucket in ("own-bucket", "second.bucket"):
        assert hadoop.get(f"fs.s3a.bucket.{bucket}.secret.key") == "a-s3cret"
    assert hadoop.get("fs.s3a.secret.key") is None
    assert hadoop.get("fs.s3a.bucket.other.secret.key") is None
    assert "a-s3cret" not in str(spark.sparkContext.getConf().getAll())
    assert "a-s3cret" not in str(spark.sql("SET -v").collect())


@pytest.mark.parametrize(
    ("uri", "environment", "cure"),
    [
        ("/data/t/request.json", {}, "must be the same location for the task"),
        ("s3://lake/t/request.json", {}, "does not get the connection's storage options"),
        ("s3://lake/t/request.json", {"key": "id"}, "was given the connection's storage options"),
    ],
)
def test_a_driver_that_cannot_read_its_request_says_what_it_takes(monkeypatch, uri, environment, cure):
    for name, value in as_environment(environment).items():
        monkeypatch.setenv(name, value)

    text = unreadable_request(uri, StorageError("there is no such file"))

    assert text.startswith(f"The Spark driver cannot read {uri} (there is no such file). ")
    assert cure in text


def test_executors_of_other_machines_get_the_options_where_spark_hides_them(monkeypatch):
    for name, value in as_environment({"key": "id", "secret": "hunter2"}).items():
        monkeypatch.setenv(name, value)

    settings = own_settings(SparkConf(loadDefaults=False).setMaster("spark://master:7077"))

    (name,) = [name for name, value in settings.items() if "hunter2" in value]
    assert re.search("(?i)secret|password|token|access[.]?key", name)  # Spark's own default for what it hides


@pytest.mark.parametrize("master", ["yarn", "k8s://https://api:6443", "local[2]", None])
def test_no_setting_holds_the_options_where_others_read_settings(monkeypatch, master):
    for name, value in as_environment({"key": "id", "secret": "hunter2"}).items():
        monkeypatch.setenv(name, value)
    given = SparkConf(loadDefaults=False)

    settings = own_settings(given if master is None else given.setMaster(master))

    assert "spark.sql.session.timeZone" in settings
    assert "hunter2" not in str(settings)
    assert not any("executorEnv" in name for name in settings)


@pytest.mark.parametrize("variables", [as_environment, address_as_environment])
def test_executors_in_pods_and_containers_are_told_where_the_store_is(monkeypatch, variables):
    options = {
        "secret": "hunter2",
        "endpoint_url": "http://minio:9000",
        "client_kwargs": {"region_name": "x"},
    }
    for name, value in variables(options).items():
        monkeypatch.setenv(name, value)

    settings = own_settings(SparkConf(loadDefaults=False).setMaster("k8s://https://api:6443"))

    address = "endpoint_url=http%3A%2F%2Fminio%3A9000&client_kwargs.region_name=x"
    assert settings["spark.executorEnv.DUCKLAKE_STORAGE_ADDRESS"] == address
    assert "hunter2" not in str(settings)
