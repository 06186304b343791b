"""What a job is submitted with, as far as it can be known where the task runs: settings, packages, jars.

They are those of the operator and those of the Spark that ``spark-submit`` belongs to there.

*Source:* Spark's scripts ``find-spark-home`` and ``load-spark-env.sh``.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

_JAR = re.compile(r"(?P<name>[A-Za-z][\w.-]*?)-(?P<version>\d[\w.-]*?)\.jar\Z")
_SETTING = re.compile(r"\s*([^\s=:#!][^\s=:]*)\s*[\s=:]\s*(.*?)\s*\Z")
_COORDINATES = 3  # group, artifact, version


@dataclass(frozen=True, slots=True)
class SubmitSettings:
    """Settings by their names, and what is on Spark's class path.

    ``artifacts`` are the versions of what packages and jars bring, ``bundled`` those of Spark's own folder on
    this machine, and ``hadoop`` is its Hadoop's, if the driver runs here. ``has_whole_conf`` is whether there
    are no settings elsewhere.
    """

    master: str
    deploy_mode: str = "client"
    conf: Mapping[str, str] = field(default_factory=dict)
    artifacts: Mapping[str, str] = field(default_factory=dict)
    bundled: Mapping[str, str] = field(default_factory=dict)
    hadoop: str | None = None
    has_whole_conf: bool = False

    @property
    def has_driver_here(self) -> bool:
        """Return True if the driver runs on the machine of the task."""
        return self.deploy_mode == "client"

    @property
    def is_kubernetes(self) -> bool:
        """Return True if the cluster is one of Kubernetes."""
        return self.master.startswith("k8s://")

    @property
    def is_yarn(self) -> bool:
        """Return True if the cluster is one of YARN."""
        return self.master.startswith("yarn")

    def has(self, artifact: str) -> bool:
        """Return True if the class path is known to have an artifact."""
        return artifact in self.artifacts or artifact in self.bundled


def submit_settings(operator: SparkSubmitOperator, master: str, deploy_mode: str) -> SubmitSettings:
    """Collect the settings that an operator's job is submitted with."""
    spark = installation(getattr(operator, "_spark_binary", None) or "spark-submit")
    of_file = settings_in(operator.properties_file) if operator.properties_file else spark.defaults
    conf = {**(of_file or {}), **{str(name): str(value) for name, value in (operator.conf or {}).items()}}
    named = [*_packages(operator, conf), *map(jar_of, _jars(operator, conf))]
    artifacts = {one[0]: one[1] for one in named if one is not None}
    has_whole_conf = of_file is not None and (bool(operator.properties_file) or bool(spark.jars))
    if deploy_mode != "client":
        return SubmitSettings(master, deploy_mode, conf, artifacts, has_whole_conf=has_whole_conf)
    return SubmitSettings(
        master, deploy_mode, conf, artifacts, spark.jars, spark.hadoop, has_whole_conf=has_whole_conf
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


@dataclass(frozen=True, slots=True)
class SparkInstallation:
    """The content of Spark's folder; ``jars`` are versions by the names of artifacts."""

    jars: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)

    @property
    def hadoop(self) -> str | None:
        """The version of its Hadoop; None: another folder has that."""
        return self.jars.get("hadoop-client-api") or self.jars.get("hadoop-common")


def installation(binary: str) -> SparkInstallation:
    """Return the Spark that a binary on the ``PATH`` belongs to, empty if it cannot be determined."""
    home = next((one for one in _homes(binary) if (one / "jars").is_dir()), None)
    if home is None:
        return SparkInstallation()
    conf = Path(os.environ.get("SPARK_CONF_DIR") or home / "conf")
    jars = dict(filter(None, (jar_of(one.name) for one in (home / "jars").glob("*.jar"))))
    return SparkInstallation(jars, settings_in(conf / "spark-defaults.conf") or {})


def _homes(binary: str) -> Iterator[Path]:
    """Yield where the scripts look: at a variable alone if it is set, else beside the binary or in pip's."""
    if home := os.environ.get("SPARK_HOME"):
        yield Path(home)
        return
    program = shutil.which(binary)
    if program is None:
        return
    folder = Path(program).parent
    if not (folder / "find_spark_home.py").exists():
        yield Path(program).resolve().parents[1]
    elif folder == Path(sys.executable).parent and (found := find_spec("pyspark")) is not None:
        yield from map(Path, found.submodule_search_locations or ())


def jar_of(file: str) -> tuple[str, str] | None:
    """Return the artifact and the version that a jar's name says.

    >>> jar_of("hadoop-aws-3.5.0.jar"), jar_of("/opt/spark-yarn_2.13-4.2.0.jar"), jar_of("job.jar")
    (('hadoop-aws', '3.5.0'), ('spark-yarn_2.13', '4.2.0'), None)
    """
    match = _JAR.match(file.rpartition("/")[2])
    return None if match is None else (match["name"], match["version"])


def settings_in(file: str | Path) -> dict[str, str] | None:
    """Return the settings of a file of properties; None: it cannot be read here."""
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    found = [match for line in lines if (match := _SETTING.match(line))]
    return {match[1]: match[2] for match in found}
