"""The submitted file keeps large jars, which Spark puts on Python's path, from who looks for modules."""

import os
import subprocess
import sys
from pathlib import Path

from airflow_provider_ducklake.lake.spark.job.package_zip import application_file

RUN = "import sys\ndef main(arguments):\n    print(*sys.path, *arguments, sep='\\n')\n    return 7\n"


def test_large_jars_are_no_place_for_modules(tmp_path: Path):
    jobs = tmp_path / "airflow_provider_ducklake" / "lake" / "spark" / "jobs"
    jobs.mkdir(parents=True)
    for folder in (jobs, *jobs.parents[:3]):
        (folder / "__init__.py").touch()
    (jobs / "run.py").write_text(RUN)
    jars = {size: tmp_path / f"{size}.jar" for size in ("small", "large")}
    for jar in jars.values():
        jar.touch()
    os.truncate(jars["large"], 51 * 2**20)
    path = [str(tmp_path / "missing.jar"), *map(str, jars.values()), str(tmp_path)]

    ended = subprocess.run(
        [sys.executable, str(application_file()), "uri"],
        env={"PYTHONPATH": os.pathsep.join(path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode == 7, ended.stderr
    lines = ended.stdout.splitlines()
    assert lines[-1] == "uri"
    assert str(jars["small"]) in lines
    assert str(tmp_path / "missing.jar") in lines
    assert str(jars["large"]) not in lines
