"""Whether events say what OpenLineage's schemas allow, by the classes that its client generates from them.

The client carries the schemas as these classes: which fields there are, of which types, which of them must be
there, and the version of the schema. A standard facet is one whose ``_schemaURL`` a class has; the facets of
Airflow's provider are its own, and asked for no more than what every facet has.
"""

import enum
import inspect
import pkgutil
import types
import typing
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

import attr
from openlineage.client import generated
from openlineage.client.generated import base

_MODULES = [
    import_module(f"{generated.__name__}.{one.name}") for one in pkgutil.iter_modules(generated.__path__)
]
_FACETS: dict[str, type] = {
    one._get_schema(): one
    for module in _MODULES
    for _, one in inspect.getmembers(module, inspect.isclass)
    if issubclass(one, base.BaseFacet) and one.__module__ == module.__name__ != base.__name__
}
_STANDARD_NAMES = "https://openlineage.io/spec/"
# where facets lie, and the class that each of them there derives from
_FACETS_OF: dict[str, type[base.BaseFacet]] = {
    "run": base.RunFacet,
    "job": base.JobFacet,
    "dataset": base.DatasetFacet,
    "inputFacets": base.InputDatasetFacet,
    "outputFacets": base.OutputDatasetFacet,
}


class InvalidEventError(ValueError):
    """An event says what the schemas do not allow."""


def check_event(event: dict[str, Any]) -> int:
    """Check a run event with all that is in it; return how many facets of OpenLineage's own it has.

    Raises:
        InvalidEventError: it is not valid; says where.
    """
    bare = {**event, "run": _bare(event["run"]), "job": _bare(event["job"])}
    for side in ("inputs", "outputs"):
        bare[side] = [_bare(one) for one in event.get(side, [])]
    _built(base.RunEvent, bare, "event")
    if event["schemaURL"] != base.RunEvent._get_schema():
        raise InvalidEventError(f"event: schemaURL is {event['schemaURL']}")
    found = [("run", *one) for one in event["run"].get("facets", {}).items()]
    found += [("job", *one) for one in event["job"].get("facets", {}).items()]
    for dataset in (*event.get("inputs", []), *event.get("outputs", [])):
        for place, key in (("dataset", "facets"), ("inputFacets",) * 2, ("outputFacets",) * 2):
            found += [(place, *one) for one in dataset.get(key, {}).items()]
    return sum(_check_facet(*one) for one in found)


def _bare(holder: dict[str, Any]) -> dict[str, Any]:
    """Return a run, a job or a dataset without its facets, which are checked by their own classes."""
    return {name: {} if name.lower().endswith("facets") else one for name, one in holder.items()}


def _check_facet(place: str, name: str, facet: dict[str, Any]) -> bool:
    """Check a facet; return whether it is one of OpenLineage's own."""
    for key in ("_producer", "_schemaURL"):
        if not urlsplit(facet.get(key, "")).scheme:
            raise InvalidEventError(f"{place}.{name}: {key} is {facet.get(key)!r}, which is no URI")
    kind = _FACETS.get(facet["_schemaURL"])
    if kind is None:
        is_own = facet["_schemaURL"] == _FACETS_OF[place]._get_schema()
        if facet["_schemaURL"].startswith(_STANDARD_NAMES) and not is_own:
            raise InvalidEventError(f"{place}.{name}: no schema {facet['_schemaURL']} is known")
        return False
    if not issubclass(kind, _FACETS_OF[place]):
        raise InvalidEventError(f"{place}.{name}: a {kind.__name__} does not belong there")
    given = {key: value for key, value in facet.items() if key != "_schemaURL"}
    _built(kind, given, f"{place}.{name}")
    return True


def _built(kind: Any, value: Any, where: str) -> Any:
    """Return a value as the class or type hint wants it.

    Raises:
        InvalidEventError: it cannot be one.
    """
    if attr.has(kind):
        return _built_class(kind, value, where)
    origin, of = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return _built_union(of, value, where)
    if origin is list and isinstance(value, list):
        return [_built(of[0], one, f"{where}[{number}]") for number, one in enumerate(value)]
    if origin is dict and isinstance(value, dict):
        return {key: _built(of[1], one, f"{where}.{key}") for key, one in value.items()}
    if inspect.isclass(kind) and issubclass(kind, enum.Enum):
        return kind(value)
    is_it = kind is Any or (
        origin is None and isinstance(value, kind) and (kind is bool or value is not True)
    )
    if not is_it:
        raise InvalidEventError(f"{where}: {value!r} is no {kind}")
    return value


def _built_union(kinds: tuple[Any, ...], value: Any, where: str) -> Any:
    errors = []
    for kind in kinds:
        try:
            return _built(kind, value, where)
        except (InvalidEventError, ValueError) as error:
            errors.append(str(error))
    raise InvalidEventError(f"{where}: {'; '.join(errors)}")


def _built_class(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise InvalidEventError(f"{where}: {value!r} is no {kind.__name__}")
    hints = typing.get_type_hints(kind)
    fields = {one.name: one for one in attr.fields(kind)}
    if unknown := value.keys() - fields.keys():
        raise InvalidEventError(f"{where}: a {kind.__name__} has no {sorted(unknown)}")
    given = {
        fields[name].alias: _built(hints[name], one, f"{where}.{name}")
        for name, one in value.items()
        if fields[name].init
    }
    try:
        return kind(**given)
    except (TypeError, ValueError) as error:
        raise InvalidEventError(f"{where}: {error}") from error
