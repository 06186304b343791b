"""The Spark that ``spark-submit`` runs where the task runs: its jars, its Hadoop, its default settings.

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

_JAR = re.compile(r"(?P<name>[A-Za-z][\w.-]*?)-(?P<version>\d[\w.-]*?)\.jar\Z")
_SETTING = re.compile(r"\s*([^\s=:#!][^\s=:]*)\s*[\s=:]\s*(.*?)\s*\Z")


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
