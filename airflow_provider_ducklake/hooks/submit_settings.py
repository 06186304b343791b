"""What a job is submitted with, as far as it can be known where the task runs: settings, packages, jars."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_provider_ducklake.hooks.spark_installation import installation, jar_of, settings_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

_COORDINATES = 3  # group, artifact, version
# Of these it is known what they bring.
_KNOWN = ("hadoop-aws", "hadoop-azure", "gcs-connector", "bundle", "s3-transfer-manager")


@dataclass(frozen=True, slots=True)
class SubmitSettings:
    """Settings by their names, and what is on Spark's class path.

    ``artifacts`` are the versions of what packages and jars bring, ``bundled`` those of Spark's own folder on
    this machine, and ``hadoop`` is its Hadoop's, if the driver runs here. ``is_whole`` is whether such a
    driver can find no classes but these, ``knows_conf`` whether there are no settings elsewhere.
    """

    master: str
    deploy_mode: str = "client"
    conf: Mapping[str, str] = field(default_factory=dict)
    artifacts: Mapping[str, str] = field(default_factory=dict)
    bundled: Mapping[str, str] = field(default_factory=dict)
    hadoop: str | None = None
    is_whole: bool = False
    knows_conf: bool = False

    @property
    def has_driver_here(self) -> bool:
        """Whether the driver runs on the machine of the task."""
        return self.deploy_mode == "client"

    @property
    def is_kubernetes(self) -> bool:
        """Whether the cluster is one of Kubernetes."""
        return self.master.startswith("k8s://")

    @property
    def is_yarn(self) -> bool:
        """Whether the cluster is one of YARN."""
        return self.master.startswith("yarn")

    def has(self, artifact: str) -> bool:
        """Whether an artifact is known to be on the class path."""
        return artifact in self.artifacts or artifact in self.bundled


def submit_settings(operator: SparkSubmitOperator, master: str, deploy_mode: str) -> SubmitSettings:
    """Return what an operator's job is submitted with."""
    spark = installation(getattr(operator, "_spark_binary", None) or "spark-submit")
    of_file = settings_in(operator.properties_file) if operator.properties_file else spark.defaults
    conf = {**(of_file or {}), **{str(name): str(value) for name, value in (operator.conf or {}).items()}}
    named = [*_packages(operator, conf), *map(jar_of, _jars(operator, conf))]
    artifacts = {one[0]: one[1] for one in named if one is not None}
    knows_conf = of_file is not None and (bool(operator.properties_file) or bool(spark.jars))
    if deploy_mode != "client":
        return SubmitSettings(master, deploy_mode, conf, artifacts, knows_conf=knows_conf)
    nothing_else = None not in named and artifacts.keys() <= set(_KNOWN)
    return SubmitSettings(
        master,
        deploy_mode,
        conf,
        artifacts,
        spark.jars,
        spark.hadoop,
        is_whole=nothing_else and knows_conf and spark.is_whole,
        knows_conf=knows_conf,
    )


def _packages(operator: SparkSubmitOperator, conf: Mapping[str, str]) -> Iterator[tuple[str, str] | None]:
    for package in _listed(",", operator.packages, conf.get("spark.jars.packages")):
        coordinates = package.split(":")
        yield (coordinates[1], coordinates[2]) if len(coordinates) >= _COORDINATES else None


def _jars(operator: SparkSubmitOperator, conf: Mapping[str, str]) -> Iterator[str]:
    yield from _listed(",", operator.jars, conf.get("spark.jars"))
    yield from _listed(":", operator.driver_class_path, conf.get("spark.driver.extraClassPath"))


def _listed(separator: str, *texts: str | None) -> Iterator[str]:
    for text in texts:
        yield from filter(None, map(str.strip, (text or "").split(separator)))
