"""What Airflow is told of the provider, judged by Airflow's own schemas, manager and form services."""

import importlib
import json
import pkgutil
import sys
from pathlib import Path
from types import ModuleType

import airflow
import jsonschema
import pytest
from airflow.api_fastapi.core_api.services.ui.connections import HookMetaService
from airflow.providers_manager import ProvidersManager
from airflow.sdk import DAG
from airflow.sdk.providers_manager_runtime import ProvidersManagerTaskRuntime

from airflow_provider_ducklake import __version__, operators, sensors
from airflow_provider_ducklake.hooks.connection_form import EXTRA_FIELDS
from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.operators.compact import DuckLakeSparkMergeAdjacentFilesOperator
from airflow_provider_ducklake.operators.ddl import DuckLakeDDLOperator
from airflow_provider_ducklake.operators.insert import DuckLakeSparkInsertOperator
from airflow_provider_ducklake.provider import get_provider_info
from airflow_provider_ducklake.sensors.snapshot import DuckLakeSnapshotSensor
from tests.airflow.any_version import DagSerialization
from tests.airflow.processes import run_python


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

    heavy = ("sqlalchemy", "pyarrow", "pyspark", "fsspec", "pandas", "numpy", "psycopg", "duckdb")
    ours = tuple(f"airflow_provider_ducklake.lake.{package}." for package in ("catalog", "storage", "spark"))
    assert "airflow_provider_ducklake.sensors.snapshot" in added
    assert [name for name in added if name.split(".")[0] in heavy or name.startswith(ours)] == []


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
