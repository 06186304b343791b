"""What an operator does around `spark-submit`: what it says before, what it adds, what it gives in secret."""

import os
import sys
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from airflow_provider_ducklake.hooks import spark_submit
from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.hooks.spark_submit import (
    application_id_in,
    check_submission,
    driver_environment,
    give_to_driver,
    needs_of_driver,
    secrets_of_upload,
)
from airflow_provider_ducklake.hooks.storage import missing_packages, other_endpoint
from airflow_provider_ducklake.hooks.submit_settings import SubmitSettings, installation, submit_settings
from airflow_provider_ducklake.lake.errors import InvalidInputError
from airflow_provider_ducklake.lake.format.schema import new_columns
from airflow_provider_ducklake.lake.planning.writing.write import WritePlan
from airflow_provider_ducklake.lake.spark.job.request import Dataset, DatasetSource, JobRequest
from airflow_provider_ducklake.operators.insert import DuckLakeSparkInsertOperator
from tests.airflow.dags import context_of
from tests.airflow.spark_submit import SparkSubmit, stand_in

S3 = "s3://lake/files/main/t/ducklake-1/"
DISK = "/data/files/main/t/"
KEYS = {"key": "id", "secret": "hunter2"}
KUBERNETES, YARN = "k8s://https://cluster.example.com", "yarn"
IMAGE = {"spark.kubernetes.container.image": "lake:1"}
CLAIM = "spark.kubernetes.driver.volumes.persistentVolumeClaim.lake.mount.path"


def test_only_what_this_process_sees_as_spark_does_is_looked_for(tmp_path):
    seen = spark_submit._is_seen

    assert seen(str(tmp_path), S3, "local[2]")
    assert not seen(str(tmp_path), S3, "spark://master:7077")
    assert seen("s3a://lake/landing/", S3, "yarn")
    assert not seen("s3://landing/", S3, "local[2]")
    assert not seen("hdfs://lake/landing/", S3, "local[2]")
    for spelling in ("file:/data/in.csv", "hdfs:/in.csv", "s3a:/lake/in.csv", "in.csv"):
        assert not seen(spelling, S3, "local[2]")


@pytest.mark.parametrize(
    ("directory", "master", "mode", "options", "conf"),
    [
        (S3, YARN, "client", KEYS, {}),
        (S3, YARN, "cluster", {}, {}),
        (S3, YARN, "cluster", KEYS, {"spark.yarn.appMasterEnv.AWS_ROLE_ARN": "arn:aws:iam::1:role/lake"}),
        (S3, YARN, "cluster", KEYS, {"spark.hadoop.hadoop.security.credential.provider.path": "jceks://x"}),
        (S3, KUBERNETES, "cluster", KEYS, {"spark.kubernetes.driver.podTemplateFile": "/etc/pod.yaml"}),
        (S3, KUBERNETES, "cluster", KEYS, {"spark.kubernetes.authenticate.driver.serviceAccountName": "x"}),
        (S3, KUBERNETES, "cluster", KEYS, {"spark.kubernetes.driver.secretKeyRef.AWS_ACCESS_KEY_ID": "s:k"}),
        (DISK, YARN, "client", {}, {}),
    ],
)
def test_a_driver_that_has_what_it_needs_is_not_spoken_of(directory, master, mode, options, conf):
    assert needs_of_driver(directory, SubmitSettings(master, mode, conf), options) is None


@pytest.mark.parametrize(
    ("directory", "master", "conf", "said"),
    [
        (S3, YARN, {}, "'spark.hadoop.hadoop.security.credential.provider.path': 'jceks://hdfs/…'"),
        (S3, KUBERNETES, {}, "'spark.kubernetes.authenticate.driver.serviceAccountName': '…'"),
        ("gs://lake/t/", KUBERNETES, {}, "It opens gs://lake/t/ with credentials of its own"),
        (
            DISK,
            YARN,
            {},
            r"the driver must run as the user of this task \(\w+, uid \d+\), who alone may read",
        ),
        (DISK, YARN, {}, "unless its LinuxContainerExecutor is set up"),
        (DISK, KUBERNETES, {}, "No setting mounts it .* 'spark.kubernetes.driver.volumes.persistentVolume"),
        (DISK, KUBERNETES, {CLAIM: "/data/file"}, "No setting mounts it"),
    ],
)
def test_what_a_driver_elsewhere_lacks_is_said_with_the_line_to_add(directory, master, conf, said):
    notice = needs_of_driver(directory, SubmitSettings(master, "cluster", conf), KEYS)

    with pytest.raises(ValueError, match=said):
        raise ValueError(notice)
    assert KEYS["secret"] not in str(notice)


def test_a_mounted_directory_needs_its_user_alone():
    notice = needs_of_driver(DISK, SubmitSettings(KUBERNETES, "cluster", {CLAIM: "/data/files"}), {})

    assert notice is not None
    assert "must run as the user" in notice
    assert "mount" not in notice


@pytest.mark.parametrize(
    ("conf", "application", "missing"),
    [
        ({}, "main.py", "spark.kubernetes.container.image"),
        (IMAGE, "main.py", "spark.kubernetes.file.upload.path"),
        (IMAGE, "local:///opt/main.py", None),
        ({**IMAGE, "spark.kubernetes.file.upload.path": "s3a://b/x"}, "main.py", None),
    ],
)
def test_settings_that_kubernetes_needs_are_asked_for(conf, application, missing):
    settings = SubmitSettings(KUBERNETES, "cluster", conf, has_whole_conf=True)

    if missing is None:
        check_submission(settings, application)
    else:
        with pytest.raises(InvalidInputError, match=rf"Add conf \{{'{missing}': '.+'\}}"):
            check_submission(settings, application)


def test_settings_elsewhere_may_have_what_kubernetes_needs():
    check_submission(SubmitSettings(KUBERNETES, "cluster"), "main.py")


UPLOAD = "spark.kubernetes.file.upload.path"
PLACE = {**KEYS, "endpoint_url": "http://minio:9000", "client_kwargs": {"region_name": "eu-west-1"}}
ADDRESS = "endpoint_url=http%3A%2F%2Fminio%3A9000&client_kwargs.region_name=eu-west-1"


@pytest.mark.parametrize(
    ("directory", "master", "mode", "given"),
    [
        (S3, KUBERNETES, "cluster", {"spark.kubernetes.driverEnv.DUCKLAKE_STORAGE_ADDRESS": ADDRESS}),
        (S3, YARN, "cluster", {"spark.yarn.appMasterEnv.DUCKLAKE_STORAGE_ADDRESS": ADDRESS}),
        (S3, YARN, "client", {}),
        (DISK, YARN, "cluster", {}),
        (S3, "spark://master:7077", "cluster", {}),
    ],
)
def test_a_driver_elsewhere_is_told_where_the_store_is(directory, master, mode, given):
    assert driver_environment(directory, SubmitSettings(master, mode), PLACE) == given


def test_an_address_with_a_password_is_told_to_nobody():
    options = {"endpoint_url": "http://user:hunter2@minio:9000"}

    assert driver_environment(S3, SubmitSettings(YARN, "cluster"), options) == {}


@pytest.mark.parametrize(
    ("master", "upload", "variables"),
    [
        (KUBERNETES, "s3a://lake/up", {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "hunter2"}),
        (KUBERNETES, "s3a://another/up", {}),
        (KUBERNETES, "file:///up", {}),
        (YARN, "s3a://lake/up", {}),  # its client writes what it knows of S3A into a file
    ],
)
def test_an_upload_into_the_lakes_bucket_has_its_keys(master, upload, variables):
    settings = SubmitSettings(master, "cluster", {UPLOAD: upload})

    assert secrets_of_upload(S3, settings, PLACE) == variables


# --- the packages that Spark lacks for a store ---

NO_OPTIONS = MappingProxyType({})
AWS = "org.apache.hadoop:hadoop-aws:3.5.0"
PROVIDER = "spark.hadoop.fs.s3a.aws.credentials.provider"
V1 = "com.amazonaws.auth."


@pytest.fixture
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


@pytest.mark.usefixtures("spark")
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


@pytest.mark.usefixtures("spark")
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


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("name", ["endpoint", "bucket.lake.endpoint"])
def test_an_endpoint_that_spark_alone_has_is_warned_of(name):
    url = "http://minio:9000"
    given = settings(packages=AWS, conf={f"spark.hadoop.fs.s3a.{name}": url})

    assert f'Add "endpoint_url": "{url}" to its' in other_endpoint("s3://lake/files/", given, {})
    assert other_endpoint("s3://lake/files/", given, {"endpoint_url": url}) is None
    assert other_endpoint("s3://lake/files/", given, {"client_kwargs": {"endpoint_url": url}}) is None
    assert other_endpoint("/lake/files/", given, {}) is None


@pytest.mark.usefixtures("spark")
def test_the_spark_of_this_environment_is_found(monkeypatch):
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))

    found = installation("spark-submit")

    assert found.hadoop is not None
    assert installation("no-such-binary").jars == {}


# --- what a driver is given in secret ---


class HookWithAnother(SparkSubmitHook):
    """Starts another driver while its own runs, as a second thread of the worker would."""

    another: SparkSubmitHook

    def _process_spark_submit_log(self, itr):
        assert "A_SECRET" not in os.environ
        self.another.submit("other.py")
        super()._process_spark_submit_log(itr)


@pytest.mark.parametrize("master", ["local[1]", "yarn"])
def test_drivers_that_run_at_the_same_time_see_their_own_secrets(
    master, set_connection, tmp_path, monkeypatch
):
    submit = SparkSubmit(tmp_path / "bin", [sys.executable, "-c", "print('done')"], monkeypatch)
    set_connection("spark_default", conn_type="spark", host=master)
    monkeypatch.setenv("SHARED", "what was there before")
    hook = HookWithAnother(conn_id="spark_default", env_vars={"MINE": "1"})
    hook.another = SparkSubmitHook(conn_id="spark_default")
    give_to_driver(hook, {"A_SECRET": "first", "SHARED": "for the driver"})
    give_to_driver(hook.another, {"ANOTHER_SECRET": "second"})

    hook.submit("job.py")

    environments = {call.arguments[-1]: call.environment for call in submit.calls}
    first, second = environments["job.py"], environments["other.py"]
    assert (first["A_SECRET"], first["SHARED"], "ANOTHER_SECRET" in first) == (
        "first",
        "for the driver",
        False,
    )
    assert (second["ANOTHER_SECRET"], second["SHARED"], "A_SECRET" in second) == (
        "second",
        "what was there before",
        False,
    )
    assert os.environ["SHARED"] == "what was there before"
    assert not any("first" in argument for call in submit.calls for argument in call.arguments)


# --- the link from a task to its Spark application ---


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("21:53:24 INFO Spark application local-1795643595613\n", "local-1795643595613"),
        ("21:53:24 INFO Spark application application_1795644167263_0002", "application_1795644167263_0002"),
        ("21:53:24 INFO Spark application app-20261125210527-0000", "app-20261125210527-0000"),
        ("21:53:24 INFO Writing main.t", None),
    ],
)
def test_the_driver_says_its_application(line, found):
    assert application_id_in(line) == found


@pytest.mark.parametrize("server", ["https://history.example.com/", None])
def test_the_link_leads_to_the_history_server_of_the_connection(
    server, sqlite_catalog, connect, set_connection, tmp_path, monkeypatch
):
    connect(sqlite_catalog, data_path=sqlite_catalog.data_path)
    set_connection("spark_default", conn_type="spark", host="local[1]", extra={"history_server": server})
    says = "print('21:53:24 INFO Spark application local-1795643595613')"
    stand_in(tmp_path / "bin", monkeypatch).meanwhile(says)
    pq.write_table(pa.table({"id": [1]}), tmp_path / "in.parquet")
    DuckLakeHook().get_or_create_lake()
    operator = DuckLakeSparkInsertOperator(
        task_id="insert", table="t", source=str(tmp_path / "in.parquet"), create_table=True
    )
    (link,) = operator.operator_extra_links
    assert link.get_link(operator, ti_key=None) == ""

    operator.execute(context_of("insert"))

    links = [one.get_link(operator, ti_key=None) for one in operator.operator_extra_links]
    assert links == (["https://history.example.com/history/local-1795643595613/"] if server else [])
