"""The packages that Spark lacks for a store are added, and an address that it alone has is warned of."""

import sys
from pathlib import Path
from types import MappingProxyType

import pytest
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from airflow_provider_ducklake.hooks.storage import missing_packages, other_endpoint
from airflow_provider_ducklake.hooks.submit_settings import SubmitSettings, installation, submit_settings
from airflow_provider_ducklake.lake.format.schema import new_columns
from airflow_provider_ducklake.lake.planning.writing.write import WritePlan
from airflow_provider_ducklake.lake.spark.job.request import Dataset, DatasetSource, JobRequest

NO_OPTIONS = MappingProxyType({})
AWS = "org.apache.hadoop:hadoop-aws:3.5.0"
PROVIDER = "spark.hadoop.fs.s3a.aws.credentials.provider"
V1 = "com.amazonaws.auth."


@pytest.fixture(autouse=True)
def spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Spark of Hadoop 3.5.0 in a folder that SPARK_HOME names."""
    for variable in ("SPARK_CONF_DIR", "SPARK_DIST_CLASSPATH", "HADOOP_CLASSPATH", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(variable, raising=False)
    home = tmp_path / "spark"
    (home / "jars").mkdir(parents=True)
    (home / "conf").mkdir()
    for name in ("hadoop-client-api-3.5.0.jar", "spark-yarn_2.13-4.2.0.jar"):
        (home / "jars" / name).touch()
    monkeypatch.setenv("SPARK_HOME", str(home))
    return home


def settings(mode: str = "client", **arguments) -> SubmitSettings:
    job = SparkSubmitOperator(task_id="job", application="main.py", **arguments)
    return submit_settings(job, "local[1]", mode)


def plan_in(lake: str) -> WritePlan:
    return WritePlan("main.t", f"{lake}main/t/ducklake-1/", new_columns({"id": "int64"}))


def request_of(lake: str, source: str = "/landing/in.csv") -> JobRequest:
    return JobRequest("1", DatasetSource(Dataset.of(source)), (plan_in(lake),))


@pytest.mark.parametrize(
    ("source", "arguments", "packages"),
    [
        ("s3://landing/in.csv", {}, [AWS]),
        ("abfss://c@a.dfs.core.windows.net/in.csv", {}, ["org.apache.hadoop:hadoop-azure:3.5.0"]),
        ("s3://landing/in.csv", {"packages": AWS}, []),
        ("s3://landing/in.csv", {"jars": "/opt/our-aws-build-1.0.jar"}, []),
        ("gs://landing/in.csv", {}, []),  # in which version is not known
        ("/landing/in.csv", {}, []),  # Python opens the lake itself
    ],
)
def test_the_packages_that_a_connection_may_add_are_those_that_are_certainly_missing(
    source, arguments, packages
):
    assert missing_packages(request_of("s3://lake/files/", source), settings(**arguments)) == packages


def test_nothing_is_added_where_the_driver_runs_elsewhere():
    assert missing_packages(request_of("s3://lake/files/", "s3://landing/in.csv"), settings("cluster")) == []


def given_jar(_spark: Path) -> dict[str, object]:
    return {"jars": "/opt/hadoop-aws-3.5.0.jar"}


def installed_jar(spark: Path) -> dict[str, object]:
    (spark / "jars" / "hadoop-aws-3.5.0.jar").touch()
    return {}


def in_defaults(spark: Path) -> dict[str, object]:
    (spark / "conf" / "spark-defaults.conf").write_text(f"# of all jobs\nspark.jars.packages   {AWS}\n")
    return {}


def in_properties(spark: Path) -> dict[str, object]:
    (spark / "own.conf").write_text(f"spark.jars.packages={AWS}\n")
    return {"properties_file": str(spark / "own.conf")}


SURE = [
    lambda _: {"packages": AWS},
    lambda _: {"conf": {"spark.jars.packages": AWS}},
    given_jar,
    installed_jar,
    in_defaults,
    in_properties,
]


@pytest.mark.parametrize("arguments", SURE)
def test_nobody_is_told_to_add_what_is_there(spark, arguments):
    request = request_of("s3://lake/files/", "s3://landing/in.csv")

    assert missing_packages(request, settings(**arguments(spark))) == []


@pytest.mark.parametrize("name", ["endpoint", "bucket.lake.endpoint"])
def test_an_endpoint_that_spark_alone_has_is_warned_of(name):
    url = "http://minio:9000"
    given = settings(packages=AWS, conf={f"spark.hadoop.fs.s3a.{name}": url})

    assert f'Add "endpoint_url": "{url}" to its' in other_endpoint("s3://lake/files/", given, {})
    assert other_endpoint("s3://lake/files/", given, {"endpoint_url": url}) is None
    assert other_endpoint("s3://lake/files/", given, {"client_kwargs": {"endpoint_url": url}}) is None
    assert other_endpoint("/lake/files/", given, {}) is None


def test_the_spark_of_this_environment_is_found(monkeypatch):
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))

    found = installation("spark-submit")

    assert found.hadoop is not None
    assert installation("no-such-binary").jars == {}
