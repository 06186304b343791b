"""Paths of a lake as Spark's JVM takes them."""

from __future__ import annotations

import os

from airflow_provider_ducklake.spec.names.paths import hadoop_uri
from airflow_provider_ducklake.storage.files.filesystem import split_scheme


def hadoop_path(path: str) -> str:
    """Return the absolute URI of a lake path; local ones may be relative to the working directory."""
    scheme, rest = split_scheme(path)
    return hadoop_uri(os.path.abspath(rest) if scheme == "file" else path)  # noqa: PTH100 - resolves no links
