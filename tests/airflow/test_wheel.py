"""What the built wheel holds."""

import subprocess
import sys
import zipfile
from pathlib import Path

from airflow_provider_ducklake import __version__

ROOT = Path(__file__).parents[2]
# as airflow.dag_processing.bundles.manager finds the folders of a provider by its name
FOLDERS = "import importlib, sys; print(*importlib.import_module(sys.argv[1]).__path__, sep='\\n')"


def named(folder: str) -> set[str]:
    return {str(file.relative_to(ROOT)) for file in (ROOT / folder).rglob("*.py")}


def test_the_wheel_is_typed_and_is_the_package_with_its_examples_where_airflow_looks(tmp_path):
    subprocess.run(["uv", "build", "--quiet", "--wheel", "--out-dir", tmp_path], cwd=ROOT, check=True)
    (wheel,) = tmp_path.glob("*.whl")

    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        info = f"airflow_provider_ducklake_spark-{__version__}.dist-info"
        entry_points = archive.read(f"{info}/entry_points.txt").decode()

    assert "airflow_provider_ducklake/py.typed" in names
    assert {name.partition("/")[0] for name in names} == {
        "airflow_provider_ducklake",
        "airflow_provider_ducklake_spark",
        info,
    }
    examples = {f"airflow_provider_ducklake_spark/{one}" for one in named("example_dags")}
    assert examples == {name for name in names if name.startswith("airflow_provider_ducklake_spark/")}
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    found = subprocess.run(
        [sys.executable, "-c", FOLDERS, "airflow_provider_ducklake_spark"],
        cwd=tmp_path / "site",
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.splitlines()[0] == str(tmp_path / "site" / "airflow_provider_ducklake_spark")
    assert named("airflow_provider_ducklake") <= names
    assert "[apache_airflow_provider]" in entry_points
