"""What an operator says before it submits: of jars, and of sources in the lake's own bucket."""

import pytest

from airflow_provider_ducklake.hooks import before_submit
from airflow_provider_ducklake.hooks.before_submit import missing_package, unlike_here

S3 = "s3://lake/files/main/t/ducklake-1/"


@pytest.mark.parametrize(
    ("directory", "packages", "elsewhere"),
    [
        ("/data/files/", (None,), ()),
        ("gs://lake/files/", (None,), ()),
        (S3, ("org.apache.hadoop:hadoop-aws:3.5.0",), ()),
        (S3, (None, "/opt/jars/hadoop-aws-3.5.0.jar"), ()),
        (S3, ("org.postgresql:postgresql:42.7.4",), ("spark.conf",)),
    ],
)
def test_nobody_is_warned_who_may_have_the_jar(directory, packages, elsewhere):
    assert missing_package(directory, packages, elsewhere) is None


@pytest.mark.parametrize("packages", [(None,), ("org.postgresql:postgresql:42.7.4",)])
def test_a_lake_on_s3_without_its_jar_is_warned_of(packages):
    assert 'packages="org.apache.hadoop:hadoop-aws:' in missing_package(S3, packages, (None,))


def test_a_spark_that_has_the_jar_is_not_warned_of(tmp_path, monkeypatch):
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "hadoop-aws-3.5.0.jar").touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))

    assert missing_package(S3, (None,), (None,)) is None


def test_only_what_this_process_sees_as_spark_does_is_looked_for(tmp_path):
    seen = before_submit._is_seen

    assert seen(str(tmp_path), S3, "local[2]")
    assert not seen(str(tmp_path), S3, "spark://master:7077")
    assert seen("s3a://lake/landing/", S3, "yarn")
    assert not seen("s3://landing/", S3, "local[2]")
    assert not seen("hdfs://lake/landing/", S3, "local[2]")
    for spelling in ("file:/data/in.csv", "hdfs:/in.csv", "s3a:/lake/in.csv", "in.csv"):
        assert not seen(spelling, S3, "local[2]")


@pytest.mark.parametrize(
    ("directory", "deploy_mode", "options", "said"),
    [
        (S3, "client", {"key": "id"}, None),
        (S3, "cluster", {}, None),
        (
            S3,
            "cluster",
            {"key": "id"},
            "It opens s3://lake/files/main/t/ducklake-1/ with credentials of its own",
        ),
        ("/data/files/main/t/", "client", {}, None),
        ("/data/files/main/t/", "cluster", {}, "the same there, and the driver must run as the user of"),
    ],
)
def test_what_a_driver_elsewhere_needs_is_said(directory, deploy_mode, options, said):
    notice = unlike_here(directory, deploy_mode, options)

    assert (notice is None) == (said is None)
    assert said is None or said in notice
