"""The zip that travels with a job."""

import zipfile

from airflow_provider_ducklake.lake.spark.job import package_zip


def test_the_same_sources_give_the_same_file(tmp_path):
    first, second = package_zip.package_zip(tmp_path), package_zip.package_zip(tmp_path)

    assert first == second
    assert [path.name for path in tmp_path.iterdir()] == [first.name]
    package_zip._zip_bytes.cache_clear()
    assert package_zip.zip_bytes() == first.read_bytes()


def test_it_holds_what_a_job_imports_and_nothing_of_airflow_or_the_catalog(tmp_path):
    with zipfile.ZipFile(package_zip.package_zip(tmp_path)) as archive:
        names = archive.namelist()

    folders = {name.split("/")[2] for name in names if name.startswith("airflow_provider_ducklake/lake/")}
    assert folders == {"__init__.py", "errors.py", "format", "planning", "spark", "storage", "transaction"}
    assert [name for name in names if "/lake/" not in name] == ["airflow_provider_ducklake/__init__.py"]
    assert "airflow_provider_ducklake/lake/spark/job/io.py" in names
    assert all(name.endswith(".py") for name in names)


def test_the_submitted_file_lies_alone():
    folder = package_zip.application_file().parent

    assert [path.name for path in folder.iterdir() if path.name != "__pycache__"] == ["main.py"]
