"""Secrets for a Spark driver that this process starts: by the environment, never by an argument or a file."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@contextmanager
def driver_environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Let child processes that start within this block see the variables."""
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            os.environ.pop(name, None)
