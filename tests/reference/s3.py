"""A server in this process that plays S3, and the ways in which a lake's files there are reached."""

import atexit
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest
from moto.server import ThreadedMotoServer

SECRET = "hunter2hunter2"
LIBRARIES = ("fsspec", "arrow")
# What Spark needs for S3, without the SDK's bundle of all services.
PACKAGES = "org.apache.hadoop:hadoop-aws:3.5.0,software.amazon.awssdk:s3-transfer-manager:2.35.4"


@cache
def _server() -> str:
    """Start this process's server, and return its URL."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    atexit.register(server.stop)
    host, port = server.get_host_and_port()
    return f"http://{host}:{port}"


@contextmanager
def bucket(name: str) -> Iterator[str]:
    """Yield the URL of a server that has the bucket, and perhaps what other tests left there."""
    url = _server()
    urllib.request.urlopen(urllib.request.Request(f"{url}/{name}", method="PUT")).close()
    yield url


def storage_options(endpoint: str, library: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return options for the server; with ``arrow`` fsspec cannot be imported, as on a Spark executor."""
    if library == "arrow":
        monkeypatch.setitem(sys.modules, "fsspec", None)
    return {
        "key": "id",
        "secret": SECRET,
        "endpoint_url": endpoint,
        "client_kwargs": {"region_name": "us-east-1"},
    }
