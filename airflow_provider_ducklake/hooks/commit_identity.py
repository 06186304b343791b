"""Which commit a task makes: the same one in all its retries, another one each time a person clears it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import conf

from airflow_provider_ducklake.spec.commit_key import FIRST_GENERATION, CommitKey

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_ducklake.spec.snapshots import JsonValue

_NAMESPACE_LENGTH = 12
_AIRFLOWS_DEFAULT_URL = "http://localhost:8080/"  # what Airflow's own links begin with where none is set


@dataclass(frozen=True, slots=True)
class CommitIdentity:
    """The key of a task's commit, and what its snapshot says of the task.

    ``starts_over``: this is the first try of all, so that a commit found under the key was made by a run of
    the same name that has been deleted since.
    """

    key: CommitKey
    starts_over: bool
    extra: dict[str, JsonValue]

    @property
    def task(self) -> str:
        """The DAG's and the task's id, with the index of a mapped task."""
        airflow: Any = self.extra["airflow"]
        mapped = f"[{airflow['map_index']}]" if airflow["map_index"] >= 0 else ""
        return f"{airflow['dag_id']}.{airflow['task_id']}{mapped}"


def generation(try_number: int, max_tries: int, retries: int | None) -> int:
    """Return the number of the first try since the task was last cleared; all its retries share it.

    Clearing a task raises ``max_tries`` to the tries so far and ``retries`` more. Where the author changed
    ``retries`` meanwhile the result is off, yet it is never above the try and never falls from try to try of
    the same ``retries``: rows may be replaced then, and are not added twice.
    """
    first_try = max_tries - (retries or 0) + 1
    return max(FIRST_GENERATION, min(first_try, try_number))


def default_namespace() -> str:
    """Return what tells this Airflow from others that run a DAG of the same name on the same lake."""
    base_url = conf.get("api", "base_url", fallback=None) or _AIRFLOWS_DEFAULT_URL
    return hashlib.sha256(base_url.rstrip("/").encode()).hexdigest()[:_NAMESPACE_LENGTH]


def commit_identity(
    context: Context, retries: int | None, namespace: str | None = None, part: int = 0
) -> CommitIdentity:
    """Return the identity of a running task's commit; ``part`` numbers the commits of one that makes more."""
    ti: Any = context["ti"]
    namespace = namespace or default_namespace()
    names = (namespace, ti.dag_id, ti.run_id, ti.task_id, ti.map_index, part)
    key = CommitKey(names, generation(ti.try_number, ti.max_tries, retries))
    logical_date = context.get("logical_date")
    return CommitIdentity(
        key,
        starts_over=ti.try_number == 1,
        extra={
            "airflow": {
                "dag_id": ti.dag_id,
                "run_id": ti.run_id,
                "task_id": ti.task_id,
                "map_index": ti.map_index,
                "try_number": ti.try_number,
                "logical_date": logical_date.isoformat() if logical_date is not None else None,
                "log_url": ti.log_url,
                "namespace": namespace,
                "part": part,
                "generation": key.generation,
            }
        },
    )
