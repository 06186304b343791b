"""The request of a Spark job: the source of its rows and the plan to write them; never a secret.

Imports neither pyspark nor pyarrow: operators build these values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from ...errors import InvalidInputError, InvalidOptionError
from ...format.names.paths import check_login, check_secrets
from ...format.names.paths import job_directory as job_directory  # noqa: PLC0414 - theirs, too
from ...planning.writing.write import FoundRows, RowChanges, WritePlan

if TYPE_CHECKING:
    from ...planning.reading.scan import ChangeFeedPlan, ScanPlan
    from ...planning.upkeep.compaction import Compaction

FORMATS = ("parquet", "csv", "json", "orc", "jdbc")

_RENDERED_NOTHING = ("", "None")
_SUFFIX = re.compile(r"\.(parquet|csv|json|orc)(?:\.(?:gz|bz2|zst|snappy|lz4))?/?\Z", re.IGNORECASE)
_FUNCTION = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*:[^\W\d]\w*\Z")


@dataclass(frozen=True, slots=True)
class Dataset:
    """Files or a database table that Spark's reader loads.

    ``password_env`` names the variable of the driver's environment that holds a jdbc source's password.
    """

    format: str
    path: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    password_env: str | None = None

    @classmethod
    def of(cls, source: str | Mapping[str, object], name: str = "source") -> Dataset:
        """Build the dataset that a user gave as a path, or as a mapping with the fields of this class.

        A path without a known suffix (``.parquet``, ``.csv``, ``.json``, ``.orc``) is read as Parquet.

        >>> Dataset.of("in/day.csv.gz").format
        'csv'
        """
        if isinstance(source, str):
            source = {"path": source}
        if source.get("path") in _RENDERED_NOTHING:
            raise InvalidInputError(rendered_nothing(name, source["path"]))
        unknown = set(source) - {"format", "path", "options", "password_env"}
        if unknown:
            raise InvalidOptionError(
                f"{name}: a source has no key {', '.join(sorted(unknown))}; its keys are format, path, "
                "options and conn_id."
            )
        path = _optional_text(source, "path", name)
        format_ = _optional_text(source, "format", name) or _format_of(path)
        dataset = cls(
            format=format_.lower(),
            path=path,
            options=_options(source.get("options"), name),
            password_env=_optional_text(source, "password_env", name),
        )
        dataset._check(name)
        return dataset

    def _check(self, name: str) -> None:
        if self.format not in FORMATS:
            raise InvalidOptionError(
                f"{name}: format {self.format!r} is not one of {', '.join(FORMATS)}. Read other formats in "
                "a transform."
            )
        if self.format == "jdbc":
            if self.path is not None or "url" not in self.options:
                raise InvalidOptionError(
                    f"{name}: a jdbc source has no path; its options hold url and dbtable or query."
                )
        elif not self.path:
            raise InvalidOptionError(f"{name}: a {self.format} source needs a path.")
        if self.password_env is not None and self.format != "jdbc":
            raise InvalidOptionError(f"{name}: only a jdbc source has password_env.")
        check_login(self.path, name)
        check_secrets(self.options, name)


def rendered_nothing(name: str, value: object) -> str:
    """Describe the error of a source whose template rendered no value."""
    return (
        f"{name} is {value!r}: its template rendered no value. Check that the task it refers to returned a "
        "path, or give the template a default."
    )


def _format_of(path: str | None) -> str:
    match = _SUFFIX.search(path or "")
    return match[1].lower() if match else "parquet"


def _optional_text(source: Mapping[str, object], key: str, name: str) -> str | None:
    value = source.get(key)
    if value is not None and not isinstance(value, str):
        raise InvalidOptionError(f"{name}: {key} must be a string, not {value!r}.")
    return value


def _options(value: object, name: str) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidOptionError(f"{name}: options must be a mapping, not {value!r}.")
    return {str(key): _option_text(item) for key, item in value.items()}


def _option_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True, slots=True)
class DatasetSource:
    """The rows are those of one dataset."""

    dataset: Dataset


@dataclass(frozen=True, slots=True)
class SqlSource:
    """The rows are the result of a Spark SQL query that sees each named dataset as a view."""

    sql: str
    datasets: Mapping[str, Dataset]


@dataclass(frozen=True, slots=True)
class TransformSource:
    """The rows are those of the DataFrame that ``module:function`` returns for (spark, {name: DataFrame})."""

    function: str
    datasets: Mapping[str, Dataset]


@dataclass(frozen=True, slots=True)
class Step:
    """A query of Spark SQL over views: its rows go to one of the job's plans, by its number, or into a view.

    ``columns`` are the names of its columns in order; None: those that the query gives them. ``lake_view`` is
    the view of the lake whose query it is, None for the task's own; ``is_trusted``: it runs unchecked.
    """

    query: str
    plan: int | None = None
    view: str | None = None
    columns: tuple[str, ...] | None = None
    lake_view: str | None = None
    is_trusted: bool = False


@dataclass(frozen=True, slots=True)
class LakeSource:
    """Tables of the lake, or their changes, under the names of views, and what is made of them.

    That is done by ``steps``, or by the ``function`` ``module:name``: called with the session and a function
    from a table's name to its DataFrame, it returns a DataFrame for each plan by its table's name, or
    just one. Those of the tables that are ``as_inserts`` are seen as changes that insert all their rows.
    """

    tables: Mapping[str, ScanPlan | ChangeFeedPlan]
    datasets: Mapping[str, Dataset] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    function: str | None = None
    as_inserts: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class StreamSource:
    """The rows of a streaming DataFrame that are new to its ``checkpoint``, a directory that ends in ``/``.

    The files of its batches lie in a directory named by ``staging_id``: they outlive the job, as Spark reads
    those rows no more.
    """

    rows: TransformSource
    checkpoint: str
    staging_id: str


@dataclass(frozen=True, slots=True)
class CompactionSource:
    """Files of a table, and which of them become one.

    The new files lie in a directory named by ``staging_id``: they outlive the job, and are committed even
    if it fails before it has made all of them. ``partition_id`` is that of the current partition keys,
    which name the folders of the table.
    """

    compaction: Compaction
    staging_id: str
    partition_id: int | None = None


class Action(StrEnum):
    """What a clause does with a row."""

    UPDATE = "update"
    DELETE = "delete"
    INSERT = "insert"


@dataclass(frozen=True, slots=True)
class Clause:
    """The action on rows for which its condition is the first that holds; None holds for all.

    ``values`` are Spark SQL expressions by the column that takes them, or by the dotted path of a field in
    one. Columns that are not named stay as they are, or take their defaults in a new row. None: all columns
    take those of the source with their names. ``values_see_target``: they may need columns of the table.
    """

    action: Action
    condition: str | None = None
    values: Mapping[str, str] | None = field(default_factory=dict)
    values_see_target: bool = True


@dataclass(frozen=True, slots=True)
class RowChangeSource:
    """A table whose rows are to change, and by what.

    Rows of ``target`` and of ``source`` match where ``on`` holds. Without a source no row of the table
    matches one. Conditions and values are Spark SQL, in which the two go by their aliases. ``on_equal`` are
    names, each by its parts, that ``on`` says are equal wherever it holds.
    """

    target: ScanPlan
    source: DatasetSource | SqlSource | TransformSource | LakeSource | None = None
    on: str | None = None
    matched: tuple[Clause, ...] = ()
    not_matched: tuple[Clause, ...] = ()
    not_matched_by_source: tuple[Clause, ...] = ()
    target_alias: str = "target"
    source_alias: str = "source"
    on_equal: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = ()

    @property
    def clauses(self) -> tuple[Clause, ...]:
        """All clauses; a clause's place here is its number."""
        return (*self.matched, *self.not_matched, *self.not_matched_by_source)


def condition_of(clause: Clause, changes: RowChangeSource) -> str:
    """Name the clause's condition for an error."""
    return "where" if changes.source is None else f"The condition of {_called(clause)}"


def value_of(clause: Clause) -> str:
    """Name a value of the clause for an error."""
    return f"A value of {_called(clause)}"


def _called(clause: Clause) -> str:
    return f"the clause {clause.action.value}"


@dataclass(frozen=True, slots=True)
class OverwriteSource:
    """Rows that take the place of others, which the job looks for.

    It has the plans of a row change: nothing is written by the first, and ``rows`` by the second.
    """

    rows: DatasetSource | SqlSource | TransformSource
    replaced: RowChangeSource


GivenSource: TypeAlias = DatasetSource | SqlSource | TransformSource
Source: TypeAlias = (
    DatasetSource
    | SqlSource
    | TransformSource
    | LakeSource
    | StreamSource
    | RowChangeSource
    | OverwriteSource
    | CompactionSource
)
UserDataset: TypeAlias = str | Mapping[str, object]


def source_of(
    source: UserDataset | None = None,
    sql: str | None = None,
    transform: str | None = None,
    sources: Mapping[str, UserDataset] | None = None,
) -> GivenSource:
    """Return the source for an operator's arguments; exactly one of source, sql and transform is given."""
    given = [argument for argument in (source, sql, transform) if argument is not None]
    if not given:  # an operator has asked for one already
        raise InvalidInputError(rendered_nothing("source", None))
    if len(given) > 1:
        raise InvalidInputError("Give exactly one of source, sql and transform.")
    if source is not None:
        if sources:
            raise InvalidInputError("sources is for sql or transform; give a single dataset as source.")
        return DatasetSource(Dataset.of(source))
    datasets = {name: Dataset.of(item, f"sources[{name!r}]") for name, item in (sources or {}).items()}
    if sql is not None:
        check_view_names(datasets)
        return SqlSource(sql, datasets)
    assert transform is not None
    check_function(transform)
    return TransformSource(transform, datasets)


def check_view_names(names: Iterable[str]) -> None:
    """Refuse sources with equal names: Spark ignores the case of a view's name."""
    known: dict[str, str] = {}
    for name in names:
        other = known.setdefault(name.lower(), name)
        if other != name:
            raise InvalidInputError(
                f"sources has {other!r} and {name!r}, which are the same name in Spark SQL. Rename one of "
                "them."
            )


def datasets_of(source: Source | None) -> dict[str, Dataset]:
    """Return the datasets that a job reads, by what errors call them."""
    match source:
        case DatasetSource(dataset):
            return {"source": dataset}
        case SqlSource() | TransformSource() | LakeSource():
            return {f"sources[{name!r}]": dataset for name, dataset in source.datasets.items()}
        case StreamSource(rows) | OverwriteSource(rows):
            return datasets_of(rows)
        case RowChangeSource():
            return datasets_of(source.source)
        case CompactionSource() | None:
            return {}


def check_function(name: str) -> None:
    """Refuse what names no function."""
    if _FUNCTION.match(name) is None:
        raise InvalidInputError(f"transform={name!r} does not look like 'package.module:function'.")


@dataclass(frozen=True, slots=True)
class JobRequest:
    """One attempt at one job, with a plan for each result.

    ``job_id`` is the UUIDv7 text that also names the directories of the plans, or those above them.
    """

    job_id: str
    source: Source
    plans: tuple[WritePlan, ...]
    verb: str = "insert"

    def __post_init__(self) -> None:
        for plan in self.plans:
            if self._own not in plan.directory:
                raise InvalidInputError(
                    f"Directory {plan.directory} is not the private directory of job {self.job_id}."
                )

    @property
    def _own(self) -> str:
        return f"/ducklake-{self.job_id}/"

    @property
    def directories(self) -> tuple[str, ...]:
        """The job's directories, one in each table that it writes; each ends in ``/``."""
        return tuple(dict.fromkeys(plan.directory.partition(self._own)[0] + self._own for plan in self.plans))

    @property
    def writer_id(self) -> str:
        """The id that its data files carry: files of a stream outlive the job."""
        return self.source.staging_id if isinstance(self.source, StreamSource) else self.job_id

    @property
    def directory(self) -> str:
        """The directory of its request and result."""
        return self.directories[0]

    @property
    def tables(self) -> str:
        """The names of the tables that it writes, for people."""
        return ", ".join(dict.fromkeys(plan.table for plan in self.plans))


def found_rows(request: JobRequest, done: RowChanges) -> FoundRows:
    """Collect the files that a job searched for rows to be replaced, and the rows it found."""
    source = request.source
    assert isinstance(source, OverwriteSource)
    return FoundRows(frozenset(file.id for file in source.replaced.target.files), done.deletes)
