"""Which tries of a task make the same commit, which errors a retry can cure, and the library's log lines.

Airflow shows the lines of an operator's own logger wherever it runs, and not those of other loggers.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from textwrap import wrap
from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_URL, uuid5

from airflow.providers.common.compat.sdk import AirflowFailException, conf

from ..lake import errors
from ..lake.format.arguments import given
from ..lake.format.log_lines import in_line
from ..lake.format.snapshots import FIRST_GENERATION, CommitKey, Consumer, JsonValue, OnClear

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator, Context

    from ..lake.catalog.committing.commit import KeyedCommit
    from ..lake.catalog.lake import Lake


@dataclass
class TaskDone:
    """What a try of a task did, for callers after its end.

    Which snapshots it made and read, and where the pages of its Spark application are.
    """

    snapshot_ids: tuple[int, ...] = ()
    read_at: int | None = None
    application_url: str | None = None


_INCURABLE = (
    errors.InvalidInputError,
    errors.NotFoundError,
    errors.AlreadyExistsError,
    errors.CatalogError,
    errors.UnsupportedFeatureError,
    errors.UntrustedValueError,
    errors.ZombieCommitError,
)


_PAGE_WIDTH = 100  # characters
_TASK = logging.getLogger("airflow.task")
_CURABLE = (
    errors.CatalogUnavailableError,
    errors.LockTimeoutError,
    errors.CatalogRefusedError,
    errors.CatalogMigratedError,
)


def is_incurable(error: BaseException) -> bool:
    """Return True if the next try would get the error again: a person has to correct something."""
    return isinstance(error, _INCURABLE) and not isinstance(error, _CURABLE)


def explained(error: BaseException) -> str:
    """Return an error's type, its notes (which statement, say) and its text."""
    return ": ".join([type(error).__name__, *getattr(error, "__notes__", ()), str(error)])


@contextmanager
def no_retry_on_user_errors() -> Iterator[None]:
    """Fail the task for good, also as a decorator, on an error that the next try would meet again.

    Everything else propagates as it is: Airflow then retries as the task's author asked. What an error of
    ours says is a line of the log, before the trace in which it would be hard to find.
    """
    try:
        yield
    except errors.DuckLakeError as error:
        _TASK.error("%s", _in_sight(explained(error)))
        if not is_incurable(error):
            raise
        _TASK.debug("Where it was found", exc_info=error)
        raise AirflowFailException(explained(error)) from None  # a person's mistake has no use for our frames


def _in_sight(text: str) -> str:
    """Return a text in lines that Airflow's page shows to their ends in a window of 1400 pixels.

    All but the first begin with spaces: none can be taken for a record, whatever a value holds.
    """
    lines = [
        part
        for line in text.splitlines()
        for part in wrap(line.strip(), _PAGE_WIDTH, break_long_words=False, break_on_hyphens=False)
    ]
    return "\n  ".join(lines)


class TaskLog:
    """Airflow's logger of an operator, a hook or a trigger, whose records values do not break into lines."""

    def __init__(self, log: Any) -> None:  # noqa: ANN401 - Airflow's logger
        self._log = log

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - Airflow's logger
        method = getattr(self._log, name)
        if name not in _LEVELS:
            return method
        return lambda message, *values, **given: method(message, *map(in_line, values), **given)


class LogsInLines:
    """Mixin of operators, hooks, sensors and triggers, before Airflow's base: no value breaks a line."""

    @property
    def log(self) -> Any:  # noqa: ANN401 - Airflow's logger
        """Airflow's logger, with each value on one line."""
        return TaskLog(super().log)  # type: ignore[misc] # Airflow's base class has it


class ShownByName:
    """Mixin of operators and sensors, before Airflow's base: its pages show names as "DuckLake insert"."""

    custom_operator_name: str

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        name = re.fullmatch(r"DuckLake(?:Spark)?(.*?)(?:Operator)?", cls.__name__)
        if name is not None:  # else it is a user's own, and named as the one that it extends
            words = (one if one.isupper() else one.lower() for one in _WORD.findall(name[1]))
            cls.custom_operator_name = " ".join(["DuckLake", *words])

    def pre_execute(self, context: Any) -> None:  # noqa: ANN401 - Airflow's
        """Take rendered arguments by their annotations: templates may make objects that are no texts."""
        super().pre_execute(context)  # type: ignore[misc] # Airflow's base class has it
        annotations: dict[str, Any] = {}
        for one in reversed(type(self).__mro__):
            if "__init__" in vars(one):
                annotations |= {
                    name: parameter.annotation
                    for name, parameter in inspect.signature(vars(one)["__init__"]).parameters.items()
                }
        with no_retry_on_user_errors():
            for name in self.template_fields:  # type: ignore[attr-defined] # Airflow's
                annotation = annotations.get(name)
                if isinstance(annotation, str):
                    setattr(self, name, given(name, annotation, getattr(self, name)))


_WORD = re.compile("[A-Z]+(?![a-z])|[A-Z][a-z]+")
_LEVELS = ("debug", "info", "warning", "error", "exception", "critical")
_VERBS = logging.getLogger("airflow_provider_ducklake.lake.writes")


class _OfTask(logging.Handler):
    def __init__(self, log: Any) -> None:  # noqa: ANN401 - Airflow's logger
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        self._log.log(record.levelno, record.getMessage())


@contextmanager
def verbs_logged_by(log: Any) -> Iterator[None]:  # noqa: ANN401 - Airflow's logger
    """Copy the log lines of verbs to a task's logger, as long as this lasts."""
    handler = _OfTask(log)
    before = _VERBS.level, _VERBS.propagate
    _VERBS.addHandler(handler)
    _VERBS.setLevel(logging.INFO)
    _VERBS.propagate = False
    try:
        yield
    finally:
        _VERBS.removeHandler(handler)
        _VERBS.setLevel(before[0])
        _VERBS.propagate = before[1]


# The identity of a task's commit: the same in all its retries, a new one each time it is cleared.


_NAMESPACE_LENGTH = 12
_AIRFLOWS_DEFAULT_URL = "http://localhost:8080/"  # what Airflow's own links begin with where none is set


@dataclass(frozen=True, slots=True)
class _CommitsOfTry:
    """The commits that a try has looked up, and those that it has made: each a lake and a key."""

    looked_up: set[tuple[str, str]] = field(default_factory=set)
    made: set[tuple[str, str]] = field(default_factory=set)


_try_of_process: dict[str, _CommitsOfTry] = {}  # by its id; Airflow's context has no place that lasts a try


def _commits_of(try_id: str) -> _CommitsOfTry:
    """Return the commits of the try that this process runs, and forget those of any before."""
    if try_id not in _try_of_process:
        _try_of_process.clear()
    return _try_of_process.setdefault(try_id, _CommitsOfTry())


@dataclass(frozen=True, slots=True)
class CommitIdentity:
    """The key of a task's commit, and what its snapshot records about the task.

    ``starts_over``: nothing can have been committed under the key in this run, so that a commit found there
    was made by a run of the same name that has been deleted since. ``try_id`` is another one for each try.
    ``lake_id`` identifies the lake of the commit.
    """

    key: CommitKey
    starts_over: bool
    extra: dict[str, JsonValue]
    try_id: str = ""
    lake_id: str = ""

    @property
    def task(self) -> str:
        """The DAG's and the task's id, with the index of a mapped task, and an operator that it executes.

        No two tasks have the same: ids have dots, but neither slashes nor colons.
        """
        airflow: Any = self.extra["airflow"]
        between = "/" if "." in airflow["dag_id"] else "."
        mapped = f"[{airflow['map_index']}]" if airflow["map_index"] >= 0 else ""
        executed = f":{airflow['operator']}" if "operator" in airflow else ""
        return f"{airflow['dag_id']}{between}{airflow['task_id']}{mapped}{executed}"

    @property
    def message(self) -> str:
        """The message of a snapshot if the user gives none: the ids of the DAG and the task."""
        airflow: Any = self.extra["airflow"]
        return f"{airflow['dag_id']}.{airflow['task_id']}"

    def attempt_id(self, try_number: int) -> str:
        """Return the id under which a try of the task keeps its files; later tries compute the same."""
        names = [*self.key.names, self.key.generation, try_number]
        return str(uuid5(NAMESPACE_URL, json.dumps(names)))

    def consumer(self, name: str | None = None) -> Consumer:
        """Return who consumes changes: the task, unless there is a name that tasks may share."""
        if name is not None:
            return Consumer(name)
        airflow: Any = self.extra["airflow"]
        return Consumer(self.task, airflow["namespace"])

    @contextmanager
    def made_once(self, lake: Lake) -> Iterator[CommitIdentity]:
        """Make the one commit of this try that the key names in a lake; what failed before may go on.

        Yields the identity for it, which starts over only if the try has not looked the commit up before.
        """
        airflow: Any = self.extra["airflow"]
        commits, commit = _commits_of(self.try_id), (lake.reads.lake_id(), self.key.digest)
        if commit in commits.made:
            operator = airflow.get("operator", airflow["task_id"])
            raise errors.InvalidInputError(
                f"The operator {operator!r} has already been executed in this try of task "
                f"{airflow['task_id']!r}: a retry could not find the right commit. Give each operator that "
                "one task executes its own task_id, or map the task."
            )
        starts_over = self.starts_over and commit not in commits.looked_up
        yield replace(self, starts_over=starts_over, lake_id=commit[0])
        commits.made.add(commit)

    def keyed_commit(
        self, lake: Lake, on_clear: OnClear = OnClear.REPLACE, *, makes_snapshot: bool = True
    ) -> KeyedCommit:
        """Look up what was committed under the key; from now on what is found there is of this run."""
        keyed = lake.writes.keyed_commit(
            self.key, on_clear, starts_over=self.starts_over, makes_snapshot=makes_snapshot
        )
        _commits_of(self.try_id).looked_up.add((self.lake_id, self.key.digest))
        return keyed


def generation(try_number: int, max_tries: int, retries: int | None) -> int:
    """Return the number of the first try since the task was last cleared; all its retries share it.

    Clearing a task raises ``max_tries`` to the tries so far and ``retries`` more. If the author changed
    ``retries`` since, the result is off, yet it is never above the try and never falls from try to try of
    the same ``retries``: rows may be replaced then, and are not added twice.
    """
    first_try = max_tries - (retries or 0) + 1
    return max(FIRST_GENERATION, min(first_try, try_number))


def default_namespace() -> str:
    """Return the id that separates this Airflow from others with a DAG of the same name on the same lake."""
    base_url = conf.get("api", "base_url", fallback=None) or _AIRFLOWS_DEFAULT_URL
    return hashlib.sha256(base_url.rstrip("/").encode()).hexdigest()[:_NAMESPACE_LENGTH]


def commit_identity(
    context: Context, operator: BaseOperator, namespace: str | None = None, part: int = 0
) -> CommitIdentity:
    """Return the identity of a commit that an operator makes in a running task.

    A task may execute other operators than its own, each with its own ``task_id``. ``part``
    numbers the commits of one operator that makes more.
    """
    ti: Any = context["ti"]
    namespace = namespace or default_namespace()
    names: tuple[str | int, ...] = (namespace, ti.dag_id, ti.run_id, ti.task_id, ti.map_index, part)
    is_own = operator.task_id == ti.task_id
    retries = operator.retries if is_own else ti.task.retries
    key = CommitKey(
        names if is_own else (*names, operator.task_id), generation(ti.try_number, ti.max_tries, retries)
    )
    logical_date = context.get("logical_date")
    airflow: dict[str, JsonValue] = {
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
    if not is_own:
        airflow["operator"] = operator.task_id
    return CommitIdentity(key, ti.try_number == 1, {"airflow": airflow}, f"{ti.id} {ti.try_number}")
