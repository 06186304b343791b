"""Apache Airflow provider that creates, loads, changes and maintains DuckLake lakehouses as DAG tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__version__ = "0.1.0"


def imported_when_used(package: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package for names of its modules: a DAG file needs a few, not all."""

    def attribute(name: str) -> Any:  # noqa: ANN401 - whatever the module has
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{names[name]}"), name)

    return attribute
