"""The packages from which users import: each name is there, and loads what it needs alone."""

import importlib

import pytest

from airflow_provider_ducklake import lake, operators
from airflow_provider_ducklake.provider import get_provider_info
from tests.airflow.processes import run_python


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
    modules = [name for one in get_provider_info()["operators"] for name in one["python-modules"]]
    defined = {
        name
        for module in modules
        for name, one in vars(importlib.import_module(module)).items()
        if name.endswith("Operator") and getattr(one, "__module__", "") == module
    }
    inner = {name for name in defined if "Maintenance" in name or name == "DuckLakeSparkCompactionOperator"}

    assert defined - inner == set(operators.__all__) - {"ducklake_maintenance"}


def test_the_library_is_imported_without_airflow():
    text = "import sys; from airflow_provider_ducklake.lake import *; print('airflow' in sys.modules, Lake)"

    assert run_python(text).startswith("False")


def test_a_door_alone_loads_nothing():
    text = "import sys, airflow_provider_ducklake.lake; print(*(n for n in sys.modules if 'ducklake' in n))"

    assert run_python(text).split() == ["airflow_provider_ducklake", "airflow_provider_ducklake.lake"]
