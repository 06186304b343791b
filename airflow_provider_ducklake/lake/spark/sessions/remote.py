"""Make a session of Spark Connect, for one job."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...errors import InvalidInputError, short_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MODE = "SPARK_CONNECT_MODE_ENABLED"  # with it PySpark's functions do not look for a JVM
_ZONE = "spark.sql.session.timeZone"
_HADOOP = "spark.hadoop."
# A frozen server ends no call. Servers of gRPC refuse clients that ping more often than every five minutes.
_KEEPALIVE = [("grpc.keepalive_time_ms", 310_000), ("grpc.keepalive_timeout_ms", 20_000)]
_OF_SERVER = "cannot be set for one session of Spark Connect. Set it where the server is started"
# A server that is gone for longer has lost the session: 50 ms, four times as long each time, at most 15 s.
_RETRIES, _LONGEST_MS = 8, 15_000


@contextmanager
def remote_mode() -> Iterator[None]:
    """Make PySpark's functions build columns of Spark Connect, and keep its stack traces out of the log."""
    before = os.environ.get(_MODE)
    os.environ[_MODE] = "1"
    logger = logging.getLogger("SQLQueryContextLogger")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=r"\[RETRIES_EXCEEDED\]")  # the error says it
            yield
    finally:
        logger.setLevel(level)
        if before is None:
            os.environ.pop(_MODE, None)
        else:
            os.environ[_MODE] = before


def create(url: str) -> SparkSession:
    """Return a new session on the server at ``url``, which has user and token: it is never logged."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of a pandas that is newer than PySpark supports
            from pyspark.sql.connect.client import DefaultChannelBuilder
            from pyspark.sql.connect.client.retries import DefaultPolicy
            from pyspark.sql.connect.session import SparkSession as RemoteSession
    except ImportError as error:
        raise InvalidInputError(
            f"Spark Connect needs more than is installed where the task runs: {error}. Install "
            "pyspark-client in the version of the server."
        ) from error
    try:
        builder = DefaultChannelBuilder(url, _KEEPALIVE)
    except ValueError:  # PySpark's and urllib's texts show the URL
        raise InvalidInputError(
            "The URL of the Spark Connect server is wrong; it is not shown here."
        ) from None
    spark = RemoteSession.builder.channelBuilder(builder).create()
    spark.client.set_retry_policies([DefaultPolicy(max_retries=_RETRIES, max_backoff=_LONGEST_MS)])
    return spark  # type: ignore[return-value]  # of the same kind, but not of the same class


def configure(spark: SparkSession, conf: Mapping[str, str], py_files: Iterable[str]) -> None:
    """Set what the user asks for in a session of ours, and send files to its tasks."""
    from pyspark.errors import AnalysisException, IllegalArgumentException

    given = dict(conf)
    if _ZONE not in given and _ZONE not in spark.conf.getAll:
        given[_ZONE] = "UTC"
    for name, value in given.items():
        try:
            spark.conf.set(name.removeprefix(_HADOOP), value)
        except (AnalysisException, IllegalArgumentException) as error:
            # others are of the server: an outage, say
            condition = error.getCondition() or ""
            what = "has a value that Spark refuses" if "INVALID_CONF_VALUE" in condition else _OF_SERVER
            raise InvalidInputError(
                f"conf {name!r} {what}. Spark says: {condition or short_line(str(error))}"
            ) from error
    for file in py_files:
        spark.addArtifacts(file, pyfile=True)
