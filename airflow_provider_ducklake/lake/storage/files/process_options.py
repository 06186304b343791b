"""The storage options of a Spark job's lake, which the job's process was started with.

A job's request is a file and its arguments are seen by every user of the machine, so what opens the lake's
store comes by the environment, which only the same user can read. The variable's name has Spark and Airflow
hide its value wherever they show settings. Where the environment of a process is no secret, such as a pod's,
a variable says no more than where the store is.
"""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

VARIABLE = "DUCKLAKE_STORAGE_SECRETS"
ADDRESS = "DUCKLAKE_STORAGE_ADDRESS"
_OF_ADDRESS = ("endpoint_url", "account_name", "project")
_OF_CLIENT = ("endpoint_url", "region_name")
_of_tasks: list[dict[str, Any]] = []  # at most one: a process of Spark's runs one task at a time


def as_environment(storage_options: Mapping[str, Any]) -> dict[str, str]:
    """Return the variable that hands options to a process; nothing where there are none.

    >>> as_environment({"key": "id"}), as_environment({})
    ({'DUCKLAKE_STORAGE_SECRETS': '{"key": "id"}'}, {})
    """
    return {VARIABLE: json.dumps(dict(storage_options))} if storage_options else {}


def address_as_environment(storage_options: Mapping[str, Any]) -> dict[str, str]:
    """Return the variable that tells a process where a store is; nothing where its options do not say.

    Its value has no quotes: YARN's scripts would take them for their own.

    >>> address_as_environment({"key": "id", "endpoint_url": "http://minio:9000"})
    {'DUCKLAKE_STORAGE_ADDRESS': 'endpoint_url=http%3A%2F%2Fminio%3A9000'}
    """
    client = storage_options.get("client_kwargs") or {}
    found = {name: storage_options.get(name) for name in _OF_ADDRESS}
    found |= {f"client_kwargs.{name}": client.get(name) for name in _OF_CLIENT}
    named = {name: value for name, value in found.items() if isinstance(value, str) and not _is_secret(value)}
    return {ADDRESS: urlencode(named)} if named else {}


def _is_secret(text: str) -> bool:
    return not text or "@" in urlsplit(text).netloc


def _of_address(text: str) -> dict[str, Any]:
    """Return the options that a variable's value stands for.

    >>> _of_address("account_name=lake&client_kwargs.region_name=eu-west-1")
    {'account_name': 'lake', 'client_kwargs': {'region_name': 'eu-west-1'}}
    """
    options: dict[str, Any] = {}
    for name, value in parse_qsl(text):
        outer, _, inner = name.rpartition(".")
        (options.setdefault(outer, {}) if outer else options)[inner] = value
    return options


def process_options() -> dict[str, Any]:
    """Return the options that this process, or the task in it, was started with; empty where none were."""
    if _of_tasks:
        return dict(_of_tasks[-1])
    if VARIABLE in os.environ:
        options: dict[str, Any] = json.loads(os.environ[VARIABLE])
        return options
    return _of_address(os.environ.get(ADDRESS, ""))


def has_secrets() -> bool:
    """Whether this process was started with all options of the store."""
    return VARIABLE in os.environ


@contextmanager
def options_of_task(options: Mapping[str, Any]) -> Iterator[None]:
    """Have the process know options as long as a task of Spark Connect runs: it outlives the session."""
    _of_tasks.append(dict(options))
    try:
        yield
    finally:
        _of_tasks.clear()
