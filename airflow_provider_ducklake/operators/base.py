"""What the operators have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import BaseOperator

from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.hooks.no_retry import no_retry_on_user_errors

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["DuckLakeOperator", "no_retry_on_user_errors"]


class DuckLakeOperator(BaseOperator):
    """An operator that works on a lake without Spark.

    :param ducklake_conn_id: the connection of the lake. (templated)
    :param commit_message: what the snapshot says of itself; a task that makes no snapshot has no use for it.
        (templated)
    """

    template_fields: Sequence[str] = ("ducklake_conn_id", "commit_message")

    def __init__(
        self,
        *,
        ducklake_conn_id: str = DuckLakeHook.default_conn_name,
        commit_message: str | None = None,
        **kwargs: Any,  # noqa: ANN401 - Airflow's
    ) -> None:
        super().__init__(**kwargs)
        self.ducklake_conn_id = ducklake_conn_id
        self.commit_message = commit_message
