"""Feature detection: what the installed Airflow has and other supported ones lack.

``ALIASES_KEEP_ASSETS`` (3.3): Airflow shows an asset that came through an alias; in 3.1 such an event with a
list in it fails the task. ``ACK_STREAMS`` (3.3): triggers of one lake share a stream that says which of their
events were stored. Without them a trigger counts an event as stored when the next is due. ``asset_state``
(3.3): an asset's own store; without it, watermarks are kept in the lake. ``PARTITION_EVENTS`` (3.3): a task
makes an event of each partition; without them the event of the table says the partitions, and that is all (in
3.2 an event has the partition key of its task's run, which no task can change). ``RETRY_POLICIES`` (3.3):
tasks take a ``retry_policy``. ``hook_lineage_collector``: the collector moved in 3.2. ``TaskDeferralTimeout``
and ``TaskDeferralError``: so did they.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from airflow.sdk.execution_time.context import OutletEventAccessor
from airflow.triggers.base import BaseEventTrigger

ACK_STREAMS = hasattr(BaseEventTrigger, "create_shared_stream_producer")
PARTITION_EVENTS = hasattr(OutletEventAccessor, "add_partitions")
ALIASES_KEEP_ASSETS = PARTITION_EVENTS

if ACK_STREAMS:
    from airflow.triggers.shared_stream import AdvanceItem, SharedStreamProducer
else:  # an older Airflow: never used, but named

    class SharedStreamProducer:  # type: ignore[no-redef]
        """Stands in for Airflow's."""

    AdvanceItem: Any = None  # type: ignore[no-redef]

try:
    from airflow.sdk import RetryPolicy
    from airflow.sdk.definitions.retry_policy import RetryDecision
except ImportError:

    class RetryPolicy:  # type: ignore[no-redef]
        """Stands in for Airflow's; no task takes it."""

    RetryDecision: Any = None  # type: ignore[no-redef]

try:
    from airflow.sdk.exceptions import TaskDeferralError, TaskDeferralTimeout
except ImportError:
    from airflow.exceptions import TaskDeferralError, TaskDeferralTimeout  # type: ignore[no-redef]

RETRY_POLICIES = RetryDecision is not None


def asset_state(trigger: BaseEventTrigger) -> Any | None:  # noqa: ANN401 - Airflow's accessors
    """Return the store of the one asset that a trigger watches; None: there is no store, or no one asset."""
    store = getattr(trigger, "asset_state_store", None)
    known: Hashable = getattr(store, "_total", 1)
    return store if known == 1 else None


def store_name(store: object) -> str:
    """Return a text that identifies an asset's store among those of other assets."""
    return repr(store)


def hook_lineage_collector() -> Any | None:  # noqa: ANN401 - Airflow's
    """Return Airflow's collector of the assets that hooks read and wrote; None: lineage is not collected.

    Where it is, the first call has Airflow import every provider's kinds of assets.
    """
    try:
        from airflow.sdk.lineage import NoOpCollector, get_hook_lineage_collector
    except ImportError:
        from airflow.lineage.hook import NoOpCollector, get_hook_lineage_collector  # type: ignore[import-not-found,no-redef]
    collector = get_hook_lineage_collector()
    return None if isinstance(collector, NoOpCollector) else collector


__all__ = [
    "ACK_STREAMS",
    "ALIASES_KEEP_ASSETS",
    "PARTITION_EVENTS",
    "RETRY_POLICIES",
    "AdvanceItem",
    "RetryDecision",
    "RetryPolicy",
    "SharedStreamProducer",
    "TaskDeferralError",
    "TaskDeferralTimeout",
    "asset_state",
    "hook_lineage_collector",
    "store_name",
]
