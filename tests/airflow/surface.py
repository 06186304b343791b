"""The public surface: what users type, import, read from XCom and catch, as plain values.

`python -m tests.airflow.surface` replaces `tests/golden/surface.json`: in the commit that changes the
surface on purpose, and in no other.
"""

import importlib
import inspect
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from airflow_provider_ducklake import lake
from airflow_provider_ducklake.lake import errors
from airflow_provider_ducklake.lake.format.options import OPTIONS
from airflow_provider_ducklake.provider import get_provider_info

GOLDEN = Path(__file__).parents[1] / "golden" / "surface.json"
PACKAGE = "airflow_provider_ducklake"

# Where users import from beside the modules that the provider's metadata names: by module, the names.
LIBRARY = {
    "assets.ducklake": ("create_asset", "sanitize_uri"),
    "hooks.compat": ("PARTITION_EVENTS",),
    "hooks.retry_policy": ("DuckLakeRetryPolicy",),
    "lake": tuple(name for name in lake.__all__ if name != "errors"),
    "operators": ("ducklake_maintenance",),
}
_CLASSES = ("Operator", "Sensor", "Trigger", "Hook", "Link")
_TEMPLATES = ("template_fields", "template_ext", "template_fields_renderers")


def surface() -> dict[str, Any]:
    """Return the surface, a value for each path of names."""
    info = get_provider_info()
    return {
        "errors": dict(_errors()),
        "library": {
            f"{module}.{name}": _described(getattr(_module(module), name))
            for module, names in LIBRARY.items()
            for name in names
        },
        "options": {
            name: f"{one.default!r}{' in any scope' if one.scoped else ''}" for name, one in OPTIONS.items()
        },
        "provider": {
            key: value for key, value in info.items() if key not in ("versions", "connection-types")
        },
        "connection": info["connection-types"],
        "tasks": {f"{one.__module__}.{one.__name__}": _described(one) for one in _task_classes(info)},
    }


def _module(name: str) -> Any:
    return importlib.import_module(f"{PACKAGE}.{name.removeprefix(f'{PACKAGE}.')}")


def _task_classes(info: Mapping[str, Any]) -> Iterator[type]:
    """Yield the classes of the modules that the metadata names."""
    for kind in ("hooks", "operators", "sensors", "triggers"):
        for integration in info[kind]:
            for name in integration["python-modules"]:
                for one in vars(_module(name)).values():
                    is_class = inspect.isclass(one) and one.__module__ == name
                    if is_class and one.__name__.endswith(_CLASSES) and not one.__name__.startswith("_"):
                        yield one


def _errors() -> Iterator[tuple[str, Any]]:
    for name, one in vars(errors).items():
        if inspect.isclass(one) and issubclass(one, Exception) and one.__module__ == errors.__name__:
            yield name, {"bases": [base.__name__ for base in one.__bases__], "takes": _signature(one)}


def _described(one: Any) -> Any:
    if not inspect.isclass(one):
        return _signature(one) if callable(one) else type(one).__name__
    described: dict[str, Any] = {"takes": _signature(one)}
    described |= {name: list(getattr(one, name)) for name in _TEMPLATES if getattr(one, name, ())}
    if returned := _returned_keys(one):
        described["returns"] = returned
    return described | {"members": dict(_members(one))}


def _members(one: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and attributes of a class and its bases in the package."""
    for base in reversed(one.__mro__):
        if base.__module__.startswith(PACKAGE):
            for name, member in vars(base).items():
                if not name.startswith("_") and name not in _TEMPLATES:
                    is_callable = callable(member) or isinstance(member, classmethod | staticmethod)
                    yield name, _signature(getattr(one, name)) if is_callable else "attribute"


def _returned_keys(one: type) -> list[str]:
    """Return the keys that the docstring says a task returns, which is what XCom holds."""
    text = inspect.getdoc(one) or ""
    found = re.search(r"^:return:(.*)", text, re.DOTALL | re.MULTILINE)
    return sorted(set(re.findall(r'"(\w+)":', found[1]))) if found else []


def _signature(one: Any) -> list[str]:
    """Return the parameters, each as it is written; the annotations are texts."""
    try:
        parameters = inspect.signature(one).parameters.values()
    except ValueError:
        return ["*args"]
    marked = [(one.kind is one.KEYWORD_ONLY, one) for one in parameters if one.name != "self"]
    return [
        f"{'*, ' if only_named else ''}{re.sub(' at 0x[0-9a-f]+', '', str(one))}"
        for only_named, one in marked
    ]


def differences(old: Any, new: Any, path: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield where two surfaces differ: the path of names, what was there, what is."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted({*old, *new}):
            yield from differences(old.get(name), new.get(name), f"{path}/{name}")
    elif (
        isinstance(old, list) and isinstance(new, list) and all(isinstance(one, str) for one in [*old, *new])
    ):
        gone, come = [one for one in old if one not in new], [one for one in new if one not in old]
        if gone or come or old != new:
            yield path, ", ".join(gone) or "(order)", ", ".join(come) or "(order)"
    elif old != new:
        yield path, json.dumps(old), json.dumps(new)


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(surface(), indent=1, sort_keys=True) + "\n")
