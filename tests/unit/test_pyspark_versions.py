"""Two versions of PySpark over each other are named, with the command that mends them."""

from pathlib import Path

import pytest

from airflow_provider_ducklake.hooks.spark_submit import mismatch


def _install(folder: Path, **versions: str) -> None:
    for name, version in versions.items():
        info = folder / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


@pytest.mark.parametrize(
    ("versions", "said"),
    [
        (
            {"pyspark": "4.3.0", "pyspark_client": "4.2.0"},  # PyPI has no client 4.3.0
            "pip install --force-reinstall pyspark==4.2.0 pyspark-client==4.2.0",
        ),
        (
            {"pyspark": "3.5.7", "pyspark_client": "4.2.0"},  # nor one before 4.0
            "pip install --force-reinstall pyspark==4.2.0 pyspark-client==4.2.0",
        ),
        ({"pyspark": "4.3.0", "pyspark_client": "4.2.0"}, "pip install --force-reinstall pyspark=="),
        ({"pyspark": "4.2.0", "pyspark_client": "4.2.0"}, None),
    ],
)
def test_two_versions_over_each_other_are_named(tmp_path, monkeypatch, versions, said):
    _install(tmp_path, **versions)
    monkeypatch.syspath_prepend(tmp_path)

    found = mismatch()

    assert found is None if said is None else said in found
