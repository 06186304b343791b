"""Secrets for a Spark driver: in the environment of its process alone, never in an argument or a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook


def give_to_driver(hook: SparkSubmitHook, variables: Mapping[str, str]) -> None:
    """Have the process that the hook starts see the variables; neither this one nor others do.

    The hook's own ``env_vars`` would be arguments on YARN and Kubernetes.
    """
    build = hook._build_spark_submit_command  # noqa: SLF001 - it has no public way

    def built(application: str) -> list[str]:
        command: list[str] = build(application)
        hook._env = {**(hook._env or {}), **variables}  # noqa: SLF001
        return command

    hook._build_spark_submit_command = built  # type: ignore[method-assign]  # noqa: SLF001
