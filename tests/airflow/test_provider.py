"""What Airflow and users see of the provider: metadata, forms, imports, the wheel, the public surface."""

import importlib
import json
import pkgutil
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import airflow
import jsonschema
import pytest
from airflow.api_fastapi.core_api.services.ui.connections import HookMetaService
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers_manager import ProvidersManager
from airflow.sdk import DAG, BaseOperator
from airflow.sdk.providers_manager_runtime import ProvidersManagerTaskRuntime

from airflow_provider_ducklake import __version__, lake, operators, sensors
from airflow_provider_ducklake.hooks.connection_form import EXTRA_FIELDS
from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.operators.compact import DuckLakeSparkMergeAdjacentFilesOperator
from airflow_provider_ducklake.operators.ddl import DuckLakeDDLOperator
from airflow_provider_ducklake.operators.insert import DuckLakeSparkInsertOperator
from airflow_provider_ducklake.operators.spark import DuckLakeSparkOperator
from airflow_provider_ducklake.provider import get_provider_info
from airflow_provider_ducklake.sensors.snapshot import DuckLakeSnapshotSensor
from tests.airflow import surface
from tests.airflow.conftest import run_python
from tests.airflow.dags import DagSerialization
from tests.airflow.surface import GOLDEN, LIBRARY, PACKAGE, differences

HEAVY = (
    "sqlalchemy",
    "pyarrow",
    "pyspark",
    "fsspec",
    "pandas",
    "numpy",
    "psycopg",
    "duckdb",
    "sqlglot",
    "uuid6",
)


def airflow_schema(name: str) -> dict:
    return json.loads((Path(airflow.__file__).parent / name).read_text())


def connection_type() -> dict:
    (described,) = get_provider_info()["connection-types"]
    return described


def test_the_metadata_follows_airflows_schema():
    jsonschema.validate(get_provider_info(), airflow_schema("provider_info.schema.json"))


def test_the_connection_type_follows_the_stricter_schema_of_provider_sources():
    properties = airflow_schema("provider.yaml.schema.json")["properties"]

    jsonschema.validate(get_provider_info()["connection-types"], properties["connection-types"])
    jsonschema.validate(get_provider_info()["integrations"], properties["integrations"])


def test_the_default_of_each_field_is_valid_under_its_own_schema():
    for field in EXTRA_FIELDS:
        jsonschema.Draft202012Validator.check_schema(field.schema)
        if "default" in field.schema:
            jsonschema.validate(field.schema["default"], field.schema)


def test_every_module_of_operators_and_sensors_is_named():
    for package in (operators, sensors):
        found = {one.name for one in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")}
        named = get_provider_info()[package.__name__.rpartition(".")[2]]

        of_ours = {f"{package.__name__}.{name}" for name in ("base", "spark")}
        assert {one for entry in named for one in entry["python-modules"]} == found - of_ours


def test_every_module_and_class_named_in_the_metadata_imports():
    info = get_provider_info()
    modules = [
        module
        for kind in ("hooks", "operators", "sensors")
        for entry in info[kind]
        for module in entry["python-modules"]
    ]
    assert modules
    for module in modules:
        importlib.import_module(module)
    module, _, name = connection_type()["hook-class-name"].rpartition(".")
    assert getattr(importlib.import_module(module), name) is DuckLakeHook


def test_the_metadata_and_the_hook_name_the_same_connection_type():
    assert connection_type()["connection-type"] == DuckLakeHook.conn_type
    assert connection_type()["hook-name"] == DuckLakeHook.hook_name


def test_airflow_lists_the_provider_and_finds_the_hook_by_connection_type():
    hook = ProvidersManagerTaskRuntime().hooks["ducklake"]

    assert ProvidersManager().providers["airflow-provider-ducklake-spark"].version == __version__
    assert (hook.hook_name, hook.connection_id_attribute_name) == ("DuckLake", "ducklake_conn_id")


def test_the_form_of_airflow_3_3_shows_every_field_under_our_name_for_it():
    (shown,) = [meta for meta in HookMetaService.hook_meta_data() if meta.connection_type == "ducklake"]

    assert shown.hook_name == "DuckLake"
    assert shown.standard_fields.url_schema.title == "Database"
    assert list(shown.extra_fields) == [field.name for field in EXTRA_FIELDS]
    assert shown.extra_fields["catalog_type"]["schema"]["enum"] == ["postgres", "mysql", "sqlite", "duckdb"]
    assert shown.extra_fields["storage_options"]["schema"]["type"] == ["object", "null"]


@pytest.fixture
def wtforms(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-ins that Airflow 3.1 and 3.2 put in place of wtforms to read a hook's widgets."""
    module, validators = ModuleType("wtforms"), ModuleType("wtforms.validators")
    vars(module).update(StringField=HookMetaService.MockStringField)
    vars(validators).update(Optional=HookMetaService.MockOptional, any_of=HookMetaService.MockEnum)
    monkeypatch.setitem(sys.modules, "wtforms", module)
    monkeypatch.setitem(sys.modules, "wtforms.validators", validators)


@pytest.mark.usefixtures("wtforms")
def test_the_form_of_airflow_3_1_has_the_same_fields():
    declared = connection_type()["conn-fields"]

    widgets = {name: field.param.dump() for name, field in DuckLakeHook.get_connection_form_widgets().items()}

    assert list(widgets) == list(declared)
    for name, widget in widgets.items():
        assert widget["schema"]["title"] == declared[name]["label"]
        assert widget["description"] == declared[name]["description"]
        assert widget["schema"].get("enum") == declared[name]["schema"].get("enum")
        assert widget["value"] == declared[name]["schema"].get("default")


def test_both_forms_treat_the_standard_fields_alike():
    declared = connection_type()["ui-field-behaviour"]

    assert {
        key.replace("_", "-"): value for key, value in DuckLakeHook.get_ui_field_behaviour().items()
    } == declared


def test_reading_the_metadata_imports_nothing_but_the_package_itself():
    imported = run_python(
        """
        import sys
        before = set(sys.modules)
        from airflow_provider_ducklake.provider import get_provider_info
        get_provider_info()
        print(*sorted(set(sys.modules) - before - set(sys.stdlib_module_names)))
        """
    ).split()

    assert {name.split(".")[0] for name in imported} - set(sys.stdlib_module_names) == {
        "airflow_provider_ducklake"
    }


def test_a_dag_file_imports_nothing_heavy_from_us():
    """Airflow itself loads SQLAlchemy and fsspec: what counts is what our modules add to it."""
    added = run_python(
        """
        import sys
        from airflow.providers.common.compat.sdk import BaseHook, BaseSensorOperator
        before = set(sys.modules)
        import airflow_provider_ducklake.operators.commit
        import airflow_provider_ducklake.operators.expire_snapshots
        import airflow_provider_ducklake.sensors.snapshot
        print(*sorted(set(sys.modules) - before))
        """
    ).split()

    ours = tuple(f"airflow_provider_ducklake.lake.{package}." for package in ("catalog", "storage", "spark"))
    assert "airflow_provider_ducklake.sensors.snapshot" in added
    assert [name for name in added if name.split(".")[0] in HEAVY or name.startswith(ours)] == []


def test_airflows_pages_show_names_for_people():
    class Mine(DuckLakeSparkInsertOperator):
        pass

    with DAG("names", schedule=None) as dag:
        DuckLakeSparkInsertOperator(task_id="insert", table="t", source="/in.csv")
        DuckLakeSparkMergeAdjacentFilesOperator(task_id="merge", table="t")
        DuckLakeDDLOperator(task_id="ddl", create_lake=True)
        DuckLakeSnapshotSensor(task_id="sensor", table="t")
        Mine(task_id="mine", table="t", source="/in.csv")

    tasks = DagSerialization.to_dict(dag)["dag"]["tasks"]

    assert {one["__var"]["task_id"]: one["__var"]["_operator_name"] for one in tasks} == {
        "insert": "DuckLake insert",
        "merge": "DuckLake merge adjacent files",
        "ddl": "DuckLake DDL",
        "sensor": "DuckLake snapshot sensor",
        "mine": "DuckLake insert",
    }


# --- the packages from which users import ---


@pytest.mark.parametrize("door", [lake, operators], ids=["lake", "operators"])
def test_each_name_of_a_door_is_that_of_a_module(door):
    for name in door.__all__:
        found = (
            importlib.import_module(f"{door.__name__}.{name}") if name == "errors" else getattr(door, name)
        )
        assert getattr(found, "__name__", name).rpartition(".")[2] == name

    with pytest.raises(AttributeError, match="has no attribute 'no_such_name'"):
        _ = door.no_such_name


def test_the_door_has_every_operator():
    defined = {one.__name__ for one in all_operators()}
    inner = {name for name in defined if "Maintenance" in name or name == "DuckLakeSparkCompactionOperator"}

    assert defined - inner == set(operators.__all__) - {"ducklake_maintenance"}


def test_the_library_is_imported_without_airflow():
    text = "import sys; from airflow_provider_ducklake.lake import *; print('airflow' in sys.modules, Lake)"

    assert run_python(text).startswith("False")


def test_a_door_alone_loads_nothing():
    text = "import sys, airflow_provider_ducklake.lake; print(*(n for n in sys.modules if 'ducklake' in n))"

    assert run_python(text).split() == ["airflow_provider_ducklake", "airflow_provider_ducklake.lake"]


# --- what a DAG file loads, every few seconds; benchmarks/imports.py measures how long that takes ---


OPERATORS = tuple(
    one.name for one in pkgutil.iter_modules(operators.__path__, "airflow_provider_ducklake.operators.")
)
OF_LINKS = ["airflow.sdk.bases.operatorlink"]  # a small class, which Airflow asks operators for
ADDED = f"""
    import json, sys
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
    before = set(sys.modules)
    import {", ".join(OPERATORS)}
    print(json.dumps({{"before": sorted(before), "added": sorted(set(sys.modules) - before)}}))
"""


def test_a_dag_file_loads_nothing_heavy(record_property):
    found = json.loads(run_python(ADDED))

    before, added = found["before"], found["added"]
    record_property("modules of SparkSubmitOperator", len(before))
    record_property(
        "of them SQLAlchemy dialects", sum(name.startswith("sqlalchemy.dialects") for name in before)
    )
    record_property("modules added", ", ".join(added))
    assert set(OPERATORS) <= set(added)
    assert [name for name in added if name.split(".")[0] in (*HEAVY, "airflow")] == OF_LINKS
    assert [name for name in added if ".lake.catalog" in name or ".lake.storage" in name] == []


# --- the fields that the UI shows of a task ---


def all_operators() -> list[type[BaseOperator]]:
    names = [name for one in get_provider_info()["operators"] for name in one["python-modules"]]
    found = {
        one
        for name in names
        for one in vars(importlib.import_module(name)).values()
        if isinstance(one, type) and one.__name__.startswith("DuckLake") and one.__module__ == name
    }
    return sorted(found, key=lambda one: one.__name__)


def test_our_fields_come_before_those_of_spark_submit():
    theirs = set(SparkSubmitOperator.template_fields)
    jobs = [one for one in all_operators() if issubclass(one, DuckLakeSparkOperator)]

    for operator in jobs:
        is_theirs = [field in theirs for field in operator.template_fields]
        assert is_theirs == sorted(is_theirs), operator.__name__
    assert len(jobs) >= 8


def test_what_a_task_is_about_comes_first():
    for operator in all_operators():
        first = operator.template_fields[0]
        assert first not in ("ducklake_conn_id", "message"), operator.__name__
        assert len(set(operator.template_fields)) == len(operator.template_fields)


# --- the built wheel ---


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
        archive.extractall(tmp_path / "site")

    assert "airflow_provider_ducklake/py.typed" in names
    assert {name.partition("/")[0] for name in names} == {
        "airflow_provider_ducklake",
        "airflow_provider_ducklake_spark",
        info,
    }
    examples = {f"airflow_provider_ducklake_spark/{one}" for one in named("example_dags")}
    assert examples == {name for name in names if name.startswith("airflow_provider_ducklake_spark/")}
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


# --- nothing that users type, import, read or catch changes by accident ---


def test_the_public_surface_is_the_recorded_one():
    rows = list(differences(json.loads(GOLDEN.read_text()), json.loads(json.dumps(surface.surface()))))

    table = "\n".join(f"| {path} | {old} | {new} |" for path, old, new in rows)
    assert not rows, (
        f"The public surface has changed:\n\n| where | was | is |\n|---|---|---|\n{table}\n\n"
        "If that is on purpose: python -m tests.airflow.surface, and a changelog fragment."
    )


def test_the_surface_holds_all_that_the_guides_import():
    """Guides import from no module that a change could move unseen."""
    root = GOLDEN.parents[2]
    pages = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    text = "\n".join(page.read_text() for page in pages)
    found = re.findall(rf"^from {PACKAGE}\.([\w.]+) import", text, re.MULTILINE)

    recorded = json.loads(GOLDEN.read_text())
    modules = {
        *LIBRARY,
        "lake.errors",
        *(name.split(".", 1)[1].rpartition(".")[0] for name in recorded["tasks"]),
    }
    assert set(found) - modules == set()


def test_a_change_is_shown_as_what_was_and_what_is():
    old = {"a": {"takes": ["x", "y: int = 1"]}, "b": 1}
    new = {"a": {"takes": ["x", "y: int = 2"]}, "c": None}

    assert list(differences(old, new)) == [("/a/takes", "y: int = 1", "y: int = 2"), ("/b", "1", "null")]
