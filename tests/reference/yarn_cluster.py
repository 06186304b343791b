"""A YARN of this machine: Hadoop's own ResourceManager and one NodeManager, as processes of their own.

Their classes are those of Hadoop's client for tests, which `spark-submit` fetches from Maven Central.
"""

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

from tests.reference.processes import free_ports, running, wait_for

_SERVER = "org.apache.hadoop.yarn.server."
_RESOURCES = f"{_SERVER}resourcemanager.ResourceManager"
_NODE = f"{_SERVER}nodemanager.NodeManager"
_CERTIFICATES = "org.bouncycastle:bcpkix-jdk18on:1.82"  # the ResourceManager makes one
_HAS_SPARK = "org.apache.hadoop:hadoop-client-api,org.apache.hadoop:hadoop-client-runtime"
_SECONDS_TO_START = 300
_LOG = """
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
"""
JARS = Path(pyspark.__file__).parent / "jars"


@dataclass(frozen=True)
class Yarn:
    """A cluster that runs: its configuration, and all that it keeps below a folder."""

    conf: Path
    folder: Path

    @property
    def address(self) -> str:
        """The web address of the ResourceManager."""
        name = "yarn.resourcemanager.webapp.address"
        found = re.search(
            rf"<name>{name}</name><value>(.*?)</value>", (self.conf / "yarn-site.xml").read_text()
        )
        assert found is not None
        return f"http://{found[1]}"

    @property
    def logs(self) -> str:
        """All that the servers and the containers have printed."""
        files = [*self.folder.glob("*.log"), *self.folder.glob("logs/*/*/*")]
        return "".join(file.read_text(errors="replace") for file in sorted(files))


@contextmanager
def yarn_cluster(folder: Path, ivy: Path, environment: Mapping[str, str]) -> Iterator[Yarn]:
    """Start both servers, wait until they know each other, and end them with the containers.

    ``environment`` is what the node has and containers get.
    """
    conf = folder / "conf"
    conf.mkdir(parents=True)
    _write(conf / "core-site.xml", {"fs.defaultFS": "file:///"})
    _write(conf / "yarn-site.xml", _settings(folder, environment))
    (folder / "log4j2.properties").write_text(_LOG)
    class_path = os.pathsep.join([str(folder), str(conf), *map(str, _fetched(ivy)), str(JARS / "*")])
    with ExitStack() as stack:
        for name in (_RESOURCES, _NODE):
            stack.enter_context(_server(folder, name, class_path, environment))
        wait_for(folder / "ResourceManager.log", "registered with capability", _SECONDS_TO_START)
        yield Yarn(conf, folder)


# In per cent: a node looks at it once, with its health checker off, too.
_FULLEST = "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage"


def _settings(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    ports = iter(free_ports(6))
    of_resources = ("", "scheduler.", "resource-tracker.", "admin.", "webapp.")
    settings = {f"yarn.resourcemanager.{name}address": f"127.0.0.1:{next(ports)}" for name in of_resources}
    return settings | {
        "yarn.resourcemanager.hostname": "127.0.0.1",
        "yarn.resourcemanager.scheduler.class": f"{_SERVER}resourcemanager.scheduler.fifo.FifoScheduler",
        "yarn.scheduler.minimum-allocation-mb": "256",
        "yarn.nodemanager.hostname": "127.0.0.1",
        "yarn.nodemanager.bind-host": "127.0.0.1",
        "yarn.nodemanager.address": "127.0.0.1:0",
        "yarn.nodemanager.webapp.address": "127.0.0.1:0",
        "yarn.nodemanager.localizer.address": f"127.0.0.1:{next(ports)}",
        "yarn.nodemanager.local-dirs": str(folder / "local"),
        "yarn.nodemanager.log-dirs": str(folder / "logs"),
        "yarn.nodemanager.resource.memory-mb": "4096",
        "yarn.nodemanager.resource.cpu-vcores": "4",
        "yarn.nodemanager.pmem-check-enabled": "false",
        "yarn.nodemanager.vmem-check-enabled": "false",
        "yarn.nodemanager.disk-health-checker.enable": "false",
        _FULLEST: "100",
        "yarn.nodemanager.delete.debug-delay-sec": "600",
        "yarn.nodemanager.env-whitelist": ",".join(["JAVA_HOME", *environment]),
    }


def _write(file: Path, settings: Mapping[str, str]) -> None:
    one = "<property><name>{}</name><value>{}</value></property>".format
    file.write_text(f"<configuration>{''.join(one(*pair) for pair in settings.items())}</configuration>")


def _fetched(ivy: Path) -> list[Path]:
    """Return the jars that Spark does not have."""
    (client,) = JARS.glob("hadoop-client-api-*.jar")
    version = client.stem.rpartition("-")[2]
    packages = f"org.apache.hadoop:hadoop-client-minicluster:{version},{_CERTIFICATES}"
    if not (found := [*ivy.glob("jars/*.jar")]):
        nothing = ivy / "nothing.py"
        nothing.parent.mkdir(parents=True, exist_ok=True)
        nothing.touch()
        conf = ["--conf", f"spark.jars.ivy={ivy}", "--exclude-packages", _HAS_SPARK]
        submit = ["spark-submit", "--master", "local[1]", "--packages", packages, *conf, str(nothing)]
        subprocess.run(submit, check=True, capture_output=True)
        found = [*ivy.glob("jars/*.jar")]
    return found


def _server(
    folder: Path, name: str, class_path: str, environment: Mapping[str, str]
) -> AbstractContextManager[object]:
    java = str(Path(os.environ["JAVA_HOME"], "bin", "java"))
    command = [java, "-Xmx300m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", class_path, name]
    variables = {"JAVA_HOME": os.environ["JAVA_HOME"], "PATH": os.environ["PATH"], **environment}
    return running(command, folder / f"{name.rpartition('.')[2]}.log", folder, variables)
