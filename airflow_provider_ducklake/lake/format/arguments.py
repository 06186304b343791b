"""What users give for arguments: one gate where they enter, for the library's methods and the operators.

An argument that is documented as a text may come as a number, a date or a path, from templates that make
native objects say: it is taken as its text. Anything else than what the annotation names is refused, by the
name of the argument. Annotations with other words than those below are left to what they are for.
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable, Collection, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache, wraps
from numbers import Integral, Real
from typing import Any, TypeVar

from ..errors import InvalidInputError

_ALIASES = {
    "TableName": "str | tuple | QualifiedName",
    "SchemaName": "str | tuple | SchemaPath",
    "At": "int | datetime | str | None",
    "SnapshotId": "int",
    "Key": "str | CommitKey | KeyedCommit | None",
    "Given": "str | Mapping | DataFrame",
    "tuple[str, str]": "tuple",
    "Collection[str]": "Sequence[str]",
    "Clauses": "list",
    "Sequence[Mapping[str, Any]]": "list",
    "Mapping[str, Any]": "Mapping",
    "Mapping[str, str]": "Mapping",
}
_CLASSES: dict[str, tuple[type, ...]] = {
    "int": (Integral,),
    "float": (Real,),
    "bool": (bool,),
    "datetime": (datetime,),
    "timedelta": (timedelta,),
    "None": (type(None),),
    "Mapping": (Mapping,),
    "Mapping[str, JsonValue]": (Mapping,),
    "Types": (Mapping,),
    "Sequence[str]": (Collection,),
    "tuple": (tuple, list),
    "list": (list, tuple),
}
_NAMED = {
    "QualifiedName": "a name",
    "SchemaPath": "a name",
    "CommitKey": "a key",
    "KeyedCommit": "a key",
    "URL": "a URL",
    "DataFrame": "a DataFrame",
    "DuckLakeType": "a type",
    "pa.Schema": "a pyarrow Schema",
    "pa.Table": "a pyarrow Table (pa.Table.from_pylist, pa.Table.from_pandas)",
}
_MEMBERS = {  # the names of classes where the annotation is no class of that name
    "DuckLakeType": ("ScalarType", "DecimalType", "ListType", "StructType", "MapType"),
    "pa.Schema": ("Schema",),
    "pa.Table": ("Table",),
}
_SHOWN = {
    "str": "a text",
    "Sequence[str]": "a list of texts",
    "None": "None",
    "Types": "a mapping",
    "tuple": "(schema, name)",
}


def given(name: str, annotation: str, value: object) -> object:
    """Return an argument's value as its annotation has it: numbers, dates and paths as their texts.

    Raises:
        InvalidInputError: it is something else; the error names the argument.
    """
    kinds = _kinds(annotation)
    if kinds is None:
        return value
    is_day = isinstance(value, date) and not isinstance(value, datetime) and "datetime" in kinds
    if is_day or (isinstance(value, bool) and "bool" not in kinds):
        raise _refused(name, kinds, value)
    if isinstance(value, str) and "str" not in kinds and "Sequence[str]" in kinds:
        raise InvalidInputError(f"{name} is the text {value!r}. Give a list of texts: [{value!r}].")
    if "Types" in kinds and isinstance(value, Mapping):
        return {key: given(f"{name}[{key!r}]", "str | DuckLakeType", one) for key, one in value.items()}
    if _is_one(kinds - {"Sequence[str]", "tuple"}, value):
        return _as_json(name, value) if "Mapping[str, JsonValue]" in kinds else value
    if not isinstance(value, str) and _is_one(kinds & {"Sequence[str]", "tuple"}, value):
        if not isinstance(value, list | tuple):
            return value
        items = [given(name, "str | SchemaPath", one) for one in value]
        return tuple(items) if isinstance(value, tuple) or "tuple" in kinds else items
    text = _text(value) if "str" in kinds else None
    if text is None:
        raise _refused(name, kinds, value)
    return text


@lru_cache
def _kinds(annotation: str) -> frozenset[str] | None:
    """Return the parts of an annotation; None: some of them say nothing here."""
    annotation = annotation.replace("Mapping[str, str | DuckLakeType]", "Types")
    expanded = " | ".join(_ALIASES.get(one, one) for one in annotation.split(" | "))
    kinds = frozenset(expanded.split(" | "))
    return kinds if kinds <= {"str", *_CLASSES, *_NAMED} else None


def _is_one(kinds: frozenset[str], value: object) -> bool:
    if isinstance(value, str):
        return "str" in kinds
    classes = tuple(one for kind in kinds if kind in _CLASSES for one in _CLASSES[kind])
    names = {name for kind in kinds if kind in _NAMED for name in _MEMBERS.get(kind, (kind,))}
    return isinstance(value, classes) or any(one.__name__ in names for one in type(value).__mro__)


def _text(value: object) -> str | None:
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, os.PathLike):
        path = os.fspath(value)
        return path if isinstance(path, str) else None
    return str(value) if isinstance(value, int | float | Decimal) else None


def _as_json(name: str, value: object) -> object:
    try:
        json.dumps(value)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"{name} cannot be written as JSON: {error}. Give texts and numbers."
        ) from None
    return value


def _refused(name: str, kinds: frozenset[str], value: object) -> InvalidInputError:
    wanted = ", ".join(sorted(_NAMED.get(one) or _SHOWN.get(one, one) for one in kinds))
    return InvalidInputError(
        f"{name} is {value!r:.100}, which is {type(value).__name__}. Give one of: {wanted}."
    )


_Class = TypeVar("_Class", bound=type)
_Function = TypeVar("_Function", bound=Callable[..., Any])


def takes_arguments(function: _Function) -> _Function:
    """Have a function take what users give, by its annotations."""
    signature = inspect.signature(function)
    annotations = {
        name: one.annotation
        for name, one in signature.parameters.items()
        if isinstance(one.annotation, str)
        and _kinds(one.annotation) is not None
        and one.kind not in {one.VAR_POSITIONAL, one.VAR_KEYWORD}
    }

    @wraps(function)
    def taking(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the function
        bound = signature.bind(*args, **kwargs)
        for name, annotation in annotations.items():
            if name in bound.arguments:
                bound.arguments[name] = given(name, annotation, bound.arguments[name])
        return function(*bound.args, **bound.kwargs)

    return taking  # type: ignore[return-value] # with the same signature


def methods_take_arguments(cls: _Class) -> _Class:
    """Have the public methods of a class take what users give."""
    for name, method in list(vars(cls).items()):
        if name.startswith("_"):
            continue
        if isinstance(method, classmethod):
            setattr(cls, name, classmethod(takes_arguments(method.__func__)))
        elif inspect.isfunction(method):
            setattr(cls, name, takes_arguments(method))
    return cls
