"""JSON of the error with which a job failed: its class and its arguments, short and of plain types.

It lies where others than the job may write. Whatever it says, what is read here is an error of ours with a
text of bounded length.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from airflow_provider_ducklake import errors
from airflow_provider_ducklake.errors import DuckLakeError, SparkJobError

Json: TypeAlias = dict[str, Any]

LONGEST = 10_000  # characters of a text
MOST = 200  # entries of a list, and one that counts the others
_MOST_ARGUMENTS = 8
_OF_COMMITS = (errors.CommitError, errors.CommitStateUnknownError)  # a job commits nothing


def encode_error(error: DuckLakeError) -> Json:
    """Return an error of ours as its class name and constructor arguments, none longer than is read again."""
    return {"error": type(error).__name__, "args": [_encoded(one) for one in error.args]}


def _encoded(argument: object) -> object:
    if not isinstance(argument, (list, tuple)):
        return _plain(argument)
    left = len(argument) - MOST
    return [_plain(one) for one in argument[:MOST]] + ([f"and {left} more"] if left > 0 else [])


def _plain(value: object) -> object:
    if value is None or isinstance(value, (int, float, bool)):
        return value
    text = str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 2]} …"


def decode_error(item: Json) -> DuckLakeError:
    """Return the same exception again; a class unknown here, or of a commit, becomes ``SparkJobError``.

    Raises:
        TypeError, ValueError, LookupError, ArithmeticError: ``encode_error`` makes no such document.
    """
    name, arguments = _decoded_entry(item["error"]), [_decoded(one) for one in item["args"]]
    if len(arguments) > _MOST_ARGUMENTS:
        raise ValueError(f"{len(arguments)} arguments")
    class_ = getattr(errors, str(name), None)
    if not (isinstance(class_, type) and issubclass(class_, DuckLakeError)) or issubclass(
        class_, _OF_COMMITS
    ):
        return SparkJobError(f"{name}: {', '.join(map(str, arguments))}")
    error = class_(*arguments)
    str(error)  # whose arguments are of other kinds than its text takes fails here, not where it is shown
    return error


def _decoded(argument: object) -> object:
    if not isinstance(argument, list):
        return _decoded_entry(argument)
    if len(argument) > MOST + 1:
        raise ValueError(f"a list of {len(argument)} entries")
    return tuple(_decoded_entry(one) for one in argument)


def _decoded_entry(value: object) -> object:
    if isinstance(value, str):
        if len(value) > LONGEST:
            raise ValueError(f"a text of {len(value)} characters")
        return value.encode(errors="replace").decode()  # half a surrogate pair cannot be logged
    if value is None or isinstance(value, (int, float, bool)):
        return value
    raise TypeError(f"a {type(value).__name__} among the arguments")
