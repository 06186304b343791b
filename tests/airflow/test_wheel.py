"""What the built wheel holds."""

import subprocess
import zipfile
from pathlib import Path

from airflow_provider_ducklake import __version__

ROOT = Path(__file__).parents[2]


def test_the_wheel_is_typed_and_is_the_package_alone(tmp_path):
    subprocess.run(["uv", "build", "--quiet", "--wheel", "--out-dir", tmp_path], cwd=ROOT, check=True)
    (wheel,) = tmp_path.glob("*.whl")

    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        info = f"airflow_provider_ducklake_spark-{__version__}.dist-info"
        entry_points = archive.read(f"{info}/entry_points.txt").decode()

    assert "airflow_provider_ducklake/py.typed" in names
    assert {name.partition("/")[0] for name in names} == {"airflow_provider_ducklake", info}
    modules = {str(file.relative_to(ROOT)) for file in (ROOT / "airflow_provider_ducklake").rglob("*.py")}
    assert modules <= names
    assert "[apache_airflow_provider]" in entry_points
