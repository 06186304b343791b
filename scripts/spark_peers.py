"""Spark with Delta Lake and Iceberg, in an environment of its own: neither is released for the Spark we lock.

It is made once, in ``build/spark-peers``, and again when its list of packages changes; Spark fetches the jars
from Maven Central into ``ivy`` beside it. Benchmarks compare us with the two there, and tests have Iceberg
read our files.

    python scripts/spark_peers.py pytest --version    # runs a command in it
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "build" / "spark-peers"
REQUIREMENTS = Path(__file__).with_name("spark-peers.txt")
DELTA = "io.delta:delta-spark_4.1_2.13:4.4.0"
ICEBERG = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"


def jars(*packages: str) -> dict[str, str]:
    """Return the settings by which Spark gets packages and what they need."""
    return {"spark.jars.packages": ",".join(packages), "spark.jars.ivy": str(FOLDER / "ivy")}


def prepare() -> None:
    """Make the environment unless it is there as it is to be."""
    done, wanted = FOLDER / "done", REQUIREMENTS.read_text()
    if done.exists() and done.read_text() == wanted:
        return
    python = str(FOLDER / "bin" / "python")
    subprocess.run(["uv", "venv", "-q", "--allow-existing", "-p", sys.executable, FOLDER], check=True)
    subprocess.run(["uv", "pip", "install", "-q", "-p", python, "-r", REQUIREMENTS], check=True)
    done.write_text(wanted)


def run(command: list[str]) -> None:
    """Become a command of the environment, made first if need be."""
    prepare()
    os.environ["PATH"] = f"{FOLDER / 'bin'}{os.pathsep}{os.environ['PATH']}"
    os.environ["VIRTUAL_ENV"] = str(FOLDER)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = str(FOLDER / "bin" / "python")
    os.environ.pop("SPARK_HOME", None)
    os.execvp(command[0], command)  # noqa: S606 - a shell would only be in the way


if __name__ == "__main__":
    run(sys.argv[1:])
