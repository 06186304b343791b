"""What the operators have in common."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import BaseOperator

from airflow_provider_ducklake.errors import InvalidInputError
from airflow_provider_ducklake.hooks.ducklake import DuckLakeHook
from airflow_provider_ducklake.hooks.no_retry import no_retry_on_user_errors
from airflow_provider_ducklake.spec.commit_key import FIRST_GENERATION, OnClear
from airflow_provider_ducklake.spec.types.times import parse_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_ducklake.catalog.committing.planned import KeyedCommit
    from airflow_provider_ducklake.catalog.lake import Lake
    from airflow_provider_ducklake.spec.commit_key import CommitRecord

__all__ = [
    "DuckLakeOperator",
    "announce_earlier",
    "announce_replaced",
    "check_on_clear",
    "no_retry_on_user_errors",
    "parse_at",
    "parse_flag",
    "parse_on_clear",
]


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


def parse_flag(name: str, value: object) -> bool:
    """Return a flag, which a template makes a text of.

    Raises:
        InvalidInputError: neither true nor false.
    """
    word = str(value).strip().lower()
    if word not in ("true", "false"):
        raise InvalidInputError(f"{name} is {value!r}; give True or False.")
    return word == "true"


def parse_at(value: object) -> int | datetime | None:
    """Return what names a snapshot: its id or an aware time; a template makes texts of both.

    Raises:
        InvalidInputError: it names none.
    """
    if isinstance(value, str):
        word = value.strip()
        if word in ("", "None"):
            return None
        return int(word) if word.isdecimal() else parse_time(word)
    if value is None or (isinstance(value, int | datetime) and not isinstance(value, bool)):
        return value
    raise InvalidInputError(f"at={value!r}: give a snapshot id or an aware time.")


def check_on_clear(value: object) -> None:
    """Refuse a word that cannot be meant; what a template will give is not known yet."""
    if isinstance(value, str) and not is_template(value):
        parse_on_clear(value)


def is_template(value: object) -> bool:
    """Whether a template makes the value, which is not known before it runs."""
    return isinstance(value, str) and ("{{" in value or "{%" in value)


def parse_on_clear(word: str) -> OnClear:
    """Return what becomes of the rows that a task committed before it was cleared.

    Raises:
        InvalidInputError: the word says nothing.
    """
    try:
        return OnClear(word)
    except ValueError:
        raise InvalidInputError(f"on_clear is {word!r}; choose one of {', '.join(OnClear)}.") from None


def announce_earlier(log: Any, records: Sequence[CommitRecord]) -> None:  # noqa: ANN401 - Airflow's logger
    """Say that the task's commit was made before."""
    log.info(
        "Snapshot %d, committed at %s, is this task's already: nothing is written.",
        records[0].snapshot_id,
        records[0].committed_at.isoformat(timespec="seconds"),
    )


def announce_replaced(log: Any, lake: Lake, keyed: KeyedCommit) -> None:  # noqa: ANN401 - Airflow's logger
    """Say whose rows are replaced, and find out before any work whether they can be."""
    for record in keyed.seen.replaced:
        log.info(
            "%s: its %d rows of snapshot %d are replaced.",
            "A deleted run of this name had committed"
            if record.generation < FIRST_GENERATION
            else "This task was cleared after its commit",
            record.row_count,
            record.snapshot_id,
        )
    if keyed.seen.replaced:
        lake.replaced_rows(keyed.seen, lake.current_snapshot().id)
