"""What an operator says before it submits: of sources in the lake's own bucket, and of a driver elsewhere."""

import pytest

from airflow_provider_ducklake.hooks import spark_submit
from airflow_provider_ducklake.hooks.spark_submit import (
    check_submission,
    driver_environment,
    needs_of_driver,
    secrets_of_upload,
)
from airflow_provider_ducklake.hooks.submit_settings import SubmitSettings
from airflow_provider_ducklake.lake.errors import InvalidInputError

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
