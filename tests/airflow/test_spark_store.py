"""What Spark lacks for a store is said before it starts, by the one argument to add."""

import sys
from pathlib import Path
from types import MappingProxyType

import pytest
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from airflow_provider_ducklake.hooks.spark_installation import installation
from airflow_provider_ducklake.hooks.spark_submit import SubmitSettings, submit_settings
from airflow_provider_ducklake.hooks.storage import check_store, missing_packages
from airflow_provider_ducklake.lake.errors import InvalidInputError
from airflow_provider_ducklake.lake.planning.writing.write import WritePlan
from airflow_provider_ducklake.lake.spark.job.request import Dataset, DatasetSource, JobRequest, SqlSource
from airflow_provider_ducklake.lake.spec.schema import new_columns

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
    ("source", "package"),
    [
        ("s3://landing/in.csv", AWS),
        ("s3a://landing/in.csv", AWS),
        ("gs://landing/in.csv", "com.google.cloud.bigdataoss:gcs-connector:<its newest version>"),
        ("abfss://c@a.dfs.core.windows.net/in.csv", "org.apache.hadoop:hadoop-azure:3.5.0"),
    ],
)
def test_a_store_that_spark_certainly_cannot_open_is_refused(source, package):
    with pytest.raises(InvalidInputError, match=f'Add packages="{package}"') as refused:
        check_store(request_of("s3://lake/files/", source), settings(), NO_OPTIONS)

    assert ("spark_packages to auto" in str(refused.value)) is ("gcs" not in package)  # auto has no version


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
PERHAPS = [
    lambda _: {"packages": "org.apache.spark:spark-hadoop-cloud_2.13:4.0.1"},
    lambda _: {"jars": "/opt/everything.jar"},
    lambda _: {"driver_class_path": "/opt/jars/*"},
    lambda _: {"properties_file": "/nobody/has/this.conf"},
]


@pytest.mark.parametrize("arguments", SURE)
def test_nobody_is_told_to_add_what_is_there(spark, arguments):
    request = request_of("s3://lake/files/", "s3://landing/in.csv")

    assert check_store(request, settings(**arguments(spark)), NO_OPTIONS) == []


@pytest.mark.parametrize("arguments", PERHAPS)
def test_what_may_bring_it_is_not_refused(spark, arguments):
    request = request_of("/data/files/", "s3://landing/in.csv")

    assert check_store(request, settings(**arguments(spark)), NO_OPTIONS) == []


@pytest.mark.parametrize("variable", ["SPARK_DIST_CLASSPATH", "HADOOP_CLASSPATH"])
def test_classes_from_elsewhere_may_bring_it(monkeypatch, variable):
    monkeypatch.setenv(variable, "/opt/hadoop/share/*")

    (hint,) = check_store(request_of("s3://lake/files/", "s3://landing/in.csv"), settings(), NO_OPTIONS)

    assert f'Add packages="{AWS}"' in hint


def test_a_cluster_may_bring_it():
    request = request_of("s3://lake/files/", "s3://landing/in.csv")

    (hint,) = check_store(request, settings("cluster"), NO_OPTIONS)

    assert "Unless the cluster brings it" in hint
    assert "hadoop-aws:<the version of Spark's Hadoop>" in hint


def test_an_insert_of_other_files_is_only_warned():
    (hint,) = check_store(request_of("s3://lake/files/"), settings(), NO_OPTIONS)

    assert "inserts from elsewhere work" in hint
    assert check_store(request_of("/data/files/"), settings(), NO_OPTIONS) == []


def test_a_query_over_a_source_in_a_store_is_refused_by_its_name():
    source = SqlSource("SELECT 1", {"days": Dataset.of("s3://landing/in.csv")})
    request = JobRequest("1", source, (plan_in("/data/files/"),))

    with pytest.raises(InvalidInputError, match=r"\(sources\['days'\]\)"):
        check_store(request, settings(), NO_OPTIONS)


@pytest.mark.parametrize(
    ("version", "is_other"), [("3.4.1", True), ("3.5.0", False), ("3.5.0-amzn-1", False)]
)
def test_a_connector_of_another_hadoop_is_warned_of(version, is_other):
    given = settings(packages=f"org.apache.hadoop:hadoop-aws:{version}")

    hints = check_store(request_of("s3://lake/files/"), given, NO_OPTIONS)

    assert [f"hadoop-aws is {version}, but Spark's Hadoop is 3.5.0" in one for one in hints] == [
        True
    ] * is_other


@pytest.mark.parametrize(
    ("name", "successor"),
    [
        ("WebIdentityTokenCredentialsProvider", r"[\w.]*\.WebIdentityTokenFileCredentialsProvider"),
        ("DefaultAWSCredentialsProviderChain", r"software.amazon.awssdk[\w.]*\.DefaultCredentialsProvider"),
    ],
)
def test_classes_that_hadoop_no_longer_has_are_refused(name, successor):
    given = settings(packages=AWS, conf={PROVIDER: f"org.example.Mine, {V1}{name}"})

    with pytest.raises(InvalidInputError, match=f"names {V1}{name}, a class .* Set it to {successor}"):
        check_store(request_of("s3://lake/files/"), given, NO_OPTIONS)


@pytest.mark.parametrize(
    ("hadoop", "provider"),
    [
        ("3.5.0", f"{V1}InstanceProfileCredentialsProvider"),
        ("3.5.0", "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"),
        ("3.3.6", f"{V1}WebIdentityTokenCredentialsProvider"),
    ],
)
def test_classes_that_hadoop_takes_are_left_alone(spark, hadoop, provider):
    (spark / "jars" / "hadoop-client-api-3.5.0.jar").rename(spark / f"jars/hadoop-client-api-{hadoop}.jar")
    given = settings(packages=f"org.apache.hadoop:hadoop-aws:{hadoop}", conf={PROVIDER: provider})

    assert check_store(request_of("s3://lake/files/"), given, NO_OPTIONS) == []


@pytest.mark.parametrize("name", ["endpoint", "bucket.lake.endpoint"])
def test_an_endpoint_that_spark_alone_has_is_warned_of(name):
    url = "http://minio:9000"
    given = settings(packages=AWS, conf={f"spark.hadoop.fs.s3a.{name}": url})
    request = request_of("s3://lake/files/")

    (hint,) = check_store(request, given, NO_OPTIONS)

    assert f'Add "endpoint_url": "{url}" to its storage_options' in hint
    assert check_store(request, given, {"endpoint_url": url}) == []
    assert check_store(request, given, {"client_kwargs": {"endpoint_url": url}}) == []


def test_the_spark_of_this_environment_is_found(monkeypatch):
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))

    found = installation("spark-submit")

    assert found.hadoop is not None
    assert found.is_whole
    assert installation("no-such-binary").jars == {}
