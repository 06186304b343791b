"""Every exception of the package, a tree below ``DuckLakeError``; each stands behind its base.

A ``CommitError`` says that nothing landed; a ``CommitStateUnknownError`` says that it may have. No retry
cures an ``InvalidInputError``, a ``NotFoundError``, a ``CatalogError`` other than
``CatalogMigratedError``, ``CatalogUnavailableError``, ``LockTimeoutError`` and ``CatalogRefusedError``,
an ``UnsupportedFeatureError``, or an ``UntrustedValueError``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

_UNSEEN = re.compile(  # control characters but \t, what ends lines, and what turns the way they run
    "[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
)
_LONGEST_LINE, _LONGEST_ITEM = 2_000, 500  # characters


def one_line(text: str) -> str:
    r"""Return a text with its control characters and the ends of its lines as escapes.

    >>> one_line("or\x1b[31mders\u202e\n")
    'or\\x1b[31mders\\u202e\\n'
    """
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def short_line(text: str, longest: int = _LONGEST_LINE) -> str:
    """Return a text on one line, without its middle if it is too long: what to do stands at the end.

    >>> short_line("a" * 90 + " Correct it.", longest=40)
    'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa…(62 more characters)…orrect it.'
    """
    begins = longest - longest // 4
    if len(text) > longest:  # first, so that nothing is done for what is not shown
        text = f"{text[:begins]}…({len(text) - longest} more characters)…{text[begins - longest :]}"
    return one_line(text)


def _item(text: object) -> str:
    return f"- {short_line(str(text), _LONGEST_ITEM)}"


class DuckLakeError(Exception):
    """Base class of every error this package raises on purpose.

    One with fields is a dataclass: the fields, in order, are its ``args``, by which it is pickled. Its text
    is one line, or a list of several things that are wrong. No value ends a line or has control characters as
    they are, which would forge a line of the log, or change how the log looks; and all lines but the first
    are indented, as no record of a log is. ``template`` is the text with the fields' names in braces.
    """

    template = ""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, list):
                setattr(self, name, tuple(value))
        self.args = tuple(vars(self).values())

    def __str__(self) -> str:
        return "\n  ".join(map(short_line, self._lines()))

    def add_note(self, note: str) -> None:
        """Add a note on one line."""
        super().add_note(short_line(note))

    def _lines(self) -> Sequence[str]:
        return [self._text()]

    def _text(self) -> str:
        return self.template.format_map(vars(self)) if self.template else super().__str__()


class CatalogError(DuckLakeError):
    """The catalog database cannot be used."""


@dataclass(eq=False, repr=False)
class CounterBehindError(CatalogError):
    """A counter of the newest snapshot is behind what the catalog holds: a commit would give an id twice."""

    counter: str
    value: int
    least: int
    snapshot_id: int

    template = (
        "The newest snapshot {snapshot_id} has {counter} {value}, but the catalog holds "
        "what needs {least}: a commit would give out the same number twice. Nothing was committed. "
        "Verify the lake and repair what is found (docs/verify.md), then look for who wrote it."
    )


@dataclass(eq=False, repr=False)
class NotADuckLakeError(CatalogError):
    """The database holds no DuckLake catalog, or is a file that does not exist."""

    catalog: str
    problem: str = "holds no DuckLake catalog"

    template = (
        "{catalog} {problem}. Check the database and the metadata schema, or create a lake "
        "there: with create_lake in the connection, DuckLakeDDLOperator(create_lake=True) or "
        "Lake.create(...)."
    )


@dataclass(eq=False, repr=False)
class UnsupportedVersionError(CatalogError):
    """The catalog has a spec version that this operation does not handle."""

    found: str
    supported: Sequence[str]
    what_to_do: str = ""
    catalog: str = ""

    def _text(self) -> str:
        return (
            f"{self.catalog or 'The catalog'} has DuckLake version {self.found!r}; this operation supports "
            f"{', '.join(self.supported)}. {self.what_to_do}".rstrip()
        )


@dataclass(eq=False, repr=False)
class CatalogMigratedError(CatalogError):
    """The lake was migrated since it was opened: names mean other things at its new version."""

    opened: str
    version: str

    template = (
        "The lake was opened as DuckLake {opened} and migrated to {version} since then. "
        "Nothing was read or committed; run this again, on a lake that is opened again."
    )


@dataclass(eq=False, repr=False)
class MigrationRefusedError(CatalogError):
    """The catalog cannot be migrated as it is; gives every reason."""

    version: str
    reasons: Sequence[str]

    def _lines(self) -> Sequence[str]:
        first = f"The catalog cannot be migrated to DuckLake {self.version}; nothing was changed:"
        return [first, *map(_item, self.reasons), "Then migrate again."]


@dataclass(eq=False, repr=False)
class CatalogUnavailableError(CatalogError):
    """The catalog database cannot be reached or refuses the login."""

    catalog: str
    reason: str

    def _text(self) -> str:
        return f"Cannot open the catalog database {self.catalog}: {self.reason.rstrip('. ')}."


@dataclass(eq=False, repr=False)
class CatalogAddressError(CatalogError):
    """The catalog database refuses the login, or the database or the host does not exist: no retry helps."""

    catalog: str
    reason: str

    def _text(self) -> str:
        return (
            f"Cannot open the catalog database {self.catalog}: {self.reason.rstrip('. ')}. Correct the "
            "connection's login, password, host or database; the task is not retried."
        )


@dataclass(eq=False, repr=False)
class LockTimeoutError(CatalogError):
    """Another process held a lock of the catalog for too long; nothing was committed.

    ``holder`` describes it, as far as the database shows it.
    """

    catalog: str
    seconds: float
    holder: str

    template = (
        "Waited {seconds:g} s for a lock of the catalog database {catalog}. It is held by "
        "{holder}. Nothing was committed. Let that one finish, or end it if it hangs, then run "
        "this again; lock_timeout_seconds in the connection is how long a task waits."
    )


@dataclass(eq=False, repr=False)
class CatalogRefusedError(CatalogError):
    """The catalog database refused a statement: it is read-only, full, lacks a privilege, …; nothing landed.

    ``statement`` is the beginning of the refused statement, without values, ``way_out`` what to do.
    """

    catalog: str
    reason: str
    statement: str
    way_out: str = "Fix the database or the privileges of its user"

    template = (
        "The catalog database {catalog} refused ({reason}), at: {statement}. Nothing "
        "was committed. {way_out}, then run this again."
    )


class NotFoundError(DuckLakeError):
    """Something named by the caller is not in the lake."""


@dataclass(eq=False, repr=False)
class SchemaNotFoundError(NotFoundError):
    """The schema does not exist at that snapshot; ``near`` are tables that a user may have meant."""

    schema: str
    snapshot_id: int
    near: Sequence[str] = ()

    def _text(self) -> str:
        catalog, dot, _ = self.schema.partition(".")
        hint = f" If {catalog} is the name of a lake, leave it out: the connection names it." if dot else ""
        return (
            f"Schema {self.schema!r} does not exist at snapshot {self.snapshot_id}. Create it first; an "
            f"insert with create_table=True does.{hint}{_did_you_mean(self.near)}"
        )


@dataclass(eq=False, repr=False)
class TableNotFoundError(NotFoundError):
    """The table does not exist at that snapshot; ``near`` are those that a user may have meant."""

    table: str
    snapshot_id: int
    near: Sequence[str] = ()

    def _text(self) -> str:
        return (
            f"Table {self.table} does not exist at snapshot {self.snapshot_id}. Check the name (one without "
            f"a schema is in main); an insert with create_table=True creates it.{_did_you_mean(self.near)}"
        )


def _did_you_mean(names: Sequence[str]) -> str:
    return f" Did you mean {' or '.join(names)}?" if names else ""


@dataclass(eq=False, repr=False)
class ViewNotFoundError(NotFoundError):
    """The view does not exist at that snapshot."""

    view: str
    snapshot_id: int

    template = "View {view} does not exist at snapshot {snapshot_id}. Check the name."


@dataclass(eq=False, repr=False)
class MacroNotFoundError(NotFoundError):
    """The macro does not exist at that snapshot; ``kind`` is ``macro`` or ``table macro``."""

    macro: str
    snapshot_id: int
    kind: str = "macro"

    def _text(self) -> str:
        return (
            f"{self.kind.capitalize()} {self.macro} does not exist at snapshot {self.snapshot_id}. Check the "
            "name; DROP MACRO and DROP MACRO TABLE name different macros."
        )


@dataclass(eq=False, repr=False)
class ColumnNotFoundError(NotFoundError):
    """The table has no such column; ``expression`` is the user's expression that names it, if any."""

    column: str
    table: str
    columns: Sequence[str]
    expression: str = ""

    def _text(self) -> str:
        of = f" of {self.expression!r}" if self.expression else ""
        hint = " Correct the name; put strings in single quotes." if self.expression else ""
        if self.column.startswith("`"):
            hint += ' Names are quoted with ", not with backticks, where they are no expression.'
        columns = ", ".join(self.columns)
        return f"Column {self.column!r}{of} is not in {self.table}; its columns are: {columns}.{hint}"


@dataclass(eq=False, repr=False)
class SnapshotNotFoundError(NotFoundError):
    """The snapshot has expired, is in the future, or is before the first one."""

    wanted: str
    oldest: int
    newest: int
    made: tuple[datetime, ...] = ()

    def _text(self) -> str:
        made = f", made from {self.made[0]} to {self.made[1]}" if self.made else ""
        return (
            f"There is no snapshot {self.wanted}; the lake holds snapshots {self.oldest} to {self.newest}"
            f"{made} (some in between may have expired)."
        )


@dataclass(eq=False, repr=False)
class TagNotFoundError(NotFoundError):
    """The lake has no such tag; names of tags are case sensitive."""

    name: str
    tags: Sequence[str]

    def _text(self) -> str:
        shown = ", ".join(map(repr, self.tags[:_SHOWN])) or "none"
        more = f" and {len(self.tags) - _SHOWN} more" if len(self.tags) > _SHOWN else ""
        return (
            f"There is no tag {self.name!r}; the lake has {shown}{more}. Check the name, upper and lower "
            "case too, or tag a snapshot with DuckLakeTagOperator or lake.tag(...)."
        )


@dataclass(eq=False, repr=False)
class TaggedSnapshotLostError(NotFoundError):
    """The snapshot of a tag is not in the lake: a client that ignores tags has expired it."""

    name: str
    snapshot_id: int
    made: datetime

    template = (
        "The tag {name!r} names snapshot {snapshot_id}, made at {made}, which is not in the lake: a client "
        "without tags, such as DuckDB's ducklake_expire_snapshots, has expired it. Remove the tag with "
        "lake.untag(...), or restore the catalog from a backup."
    )


@dataclass(eq=False, repr=False)
class ChangesExpiredError(NotFoundError):
    """Snapshots that a consumer has not consumed yet have expired."""

    table: str
    after: int
    upto: int
    oldest: int

    template = (
        "The changes of {table} after snapshot {after} up to snapshot {upto} are no "
        "longer complete: snapshots in this range have expired (the oldest one left is {oldest}). "
        "Run the task once with full_refresh=True: it computes its results again from the whole "
        "tables."
    )


@dataclass(eq=False, repr=False)
class ChangesUndoneError(NotFoundError):
    """A restore created a table again without changes that a consumer had already consumed."""

    table: str
    consumed: int
    restored_at: int

    template = (
        "Snapshot {restored_at} restored {table} as a new table. Changes consumed up to "
        "snapshot {consumed} are not in it, or it can no longer be determined whether they are. "
        "Run the task once with full_refresh=True: it computes its results again from the whole "
        "tables."
    )


@dataclass(eq=False, repr=False)
class SourceNotFoundError(DuckLakeError):
    """The files of a source do not exist, or not yet: the next try of the task looks again."""

    name: str
    path: str

    def _text(self) -> str:
        found = next((one for one in "*?[{\\" if one in self.path), "")
        pattern = f" {found} is a pattern: write \\{found} for the character itself." if found else ""
        return (
            f"{self.name}: {self.path} does not exist. Nothing was written. Correct the path, or let the "
            f"task's retries wait for the file.{pattern}"
        )


@dataclass(eq=False, repr=False)
class AlreadyExistsError(DuckLakeError):
    """The name is already taken."""

    kind: str
    name: str

    template = "A {kind} named {name} already exists. Choose another name or drop it first."


@dataclass(eq=False, repr=False)
class TagExistsError(AlreadyExistsError):
    """The tag names another snapshot."""

    snapshot_id: int
    wanted: int

    def _text(self) -> str:
        return (
            f"The tag {self.name!r} names snapshot {self.snapshot_id}, and was to name snapshot "
            f"{self.wanted}. Choose another name, or give replace=True to move it; its old snapshot may "
            "expire then."
        )


@dataclass(eq=False, repr=False)
class ExportExistsError(AlreadyExistsError):
    """Where a frozen lake is to be written, there is a file; ``way_out`` is what to do."""

    way_out: str = "give overwrite=True"

    template = (
        "There is a {kind} {name} already, and nothing was replaced. Choose another path, with the date in "
        "it, say, or {way_out}."
    )


class InvalidInputError(DuckLakeError, ValueError):
    """An argument is invalid; nothing was started."""


class InvalidNameError(InvalidInputError):
    """A name cannot be parsed or stored."""


class InvalidTypeError(InvalidInputError):
    """A type is unknown or cannot be stored."""


class InvalidPartitionError(InvalidInputError):
    """A partition expression is unknown or does not fit its column."""


class InvalidOptionError(InvalidInputError):
    """An option is unknown, misplaced or has a value out of range."""


@dataclass(eq=False, repr=False)
class InvalidStatementError(InvalidInputError):
    """An SQL statement cannot be parsed, or needs a feature that the format lacks; says where."""

    number: int
    line: int
    column: int
    near: str
    problem: str

    template = "Statement {number}, line {line}, column {column}, at {near}: {problem} Nothing was run."


@dataclass(eq=False, repr=False)
class InvalidPredicateError(InvalidInputError):
    """A filter cannot be parsed, or needs a feature that filters lack; says where."""

    line: int
    column: int
    near: str
    problem: str

    template = "The filter, line {line}, column {column}, at {near}: {problem} Nothing was read."


@dataclass(eq=False, repr=False)
class SharedDataPathError(InvalidInputError):
    """Files below the data path may belong to another lake, so unknown files are not deleted."""

    data_path: str
    evidence: str

    template = "The data path {data_path} may be shared with another lake: {evidence} Nothing was deleted."


@dataclass(eq=False, repr=False)
class SnapshotTaggedError(InvalidInputError):
    """Snapshots that are to expire by their ids are tagged; ``snapshots`` names each with its tags."""

    snapshots: Sequence[str]

    def _text(self) -> str:
        return (
            f"snapshots names tagged ones, which do not expire: {'; '.join(self.snapshots)}. Leave them "
            "out, or remove the tags first, with DuckLakeTagOperator(action='untag') or lake.untag(...)."
        )


@dataclass(eq=False, repr=False)
class QueryTableError(InvalidInputError):
    """The query of an insert or a merge reads what is neither a source nor a table of Spark's own catalog."""

    table: str
    sources: Sequence[str]
    is_of_lake: bool = False

    def _text(self) -> str:
        sources = f"its sources ({', '.join(self.sources) or 'none are given'})"
        if self.is_of_lake:
            return (
                f"sql reads {self.table}, a table of the lake, but sees only {sources} and tables of Spark's "
                "own catalog. Use DuckLakeSparkSQLOperator, or LakeSession.sql: their statements read tables "
                "of the lake."
            )
        return (
            f"sql reads {self.table}, which is none of {sources}, and no table of Spark's own catalog or of "
            "the lake. Check the name."
        )


@dataclass(eq=False, repr=False)
class SchemaMismatchError(InvalidInputError):
    """Incoming columns do not fit the table; lists every difference, not only the first."""

    table: str
    differences: Sequence[str]

    def _lines(self) -> Sequence[str]:
        first = f"The incoming columns do not fit {self.table}; nothing was written:"
        return [first, *map(_item, self.differences), _ADAPT]


_ADAPT = "Select and convert the columns in the query, or change the table (for inserts: schema_evolution)."


@dataclass(eq=False, repr=False)
class EmptySourceError(InvalidInputError):
    """There are no rows for a table, and the task is to fail then (``if_empty``)."""

    tables: Sequence[str]

    def _text(self) -> str:
        return (
            f"There are no rows for {', '.join(self.tables)}, and if_empty is 'fail': nothing was committed. "
            "Correct the source or the query, then clear the task; if_empty='replace' commits without rows, "
            "'skip' leaves the lake as it is."
        )


@dataclass(eq=False, repr=False)
class InvalidValueError(InvalidInputError):
    """Values that no reader could read: names each column, the number of values, and one of them."""

    table: str
    problems: Sequence[str]
    ways_out: Sequence[str] = ()

    def _lines(self) -> Sequence[str]:
        first = f"Values cannot be stored in {self.table}; nothing was written:"
        return [first, *map(_item, self.problems), *self.ways_out]


class UnsupportedFeatureError(DuckLakeError):
    """The format allows it, but this release does not support it; says what."""


class FrozenLakeError(UnsupportedFeatureError):
    """The lake is frozen: its files may be another lake's, so that nothing is written or deleted."""


@dataclass(eq=False, repr=False)
class UntrustedValueError(DuckLakeError):
    """A document, or a row of the catalog, names a place or an object that it may not name.

    ``problem`` completes the sentence "this value …".
    """

    document: str
    value: str
    problem: str

    def _text(self) -> str:
        value = repr(self.value)
        shown = value if len(value) <= _LONGEST_VALUE else f"{value[:_LONGEST_VALUE]}…"
        return (
            f"{self.document} names {shown}, which {self.problem}. Nothing was read, written or deleted "
            "there. Find out who wrote it; docs/security.md lists who can."
        )


_LONGEST_VALUE = 300


class StorageError(DuckLakeError):
    """A file or directory cannot be read or written; names it."""


@dataclass(eq=False, repr=False)
class FilesNotDeletedError(StorageError):
    """Some files could not be deleted, or directories not listed; all the others were.

    ``failures`` are strings: the path and the reason.
    """

    deleted: int
    failures: Sequence[str]

    def _lines(self) -> Sequence[str]:
        first = (
            f"{self.deleted} files were deleted, {len(self.failures)} could not be deleted; the next run "
            "tries them again:"
        )
        left = len(self.failures) - _SHOWN
        return [first, *map(_item, self.failures[:_SHOWN]), *([f"and {left} more"] if left > 0 else [])]


_SHOWN = 100


class CommitError(DuckLakeError):
    """The commit did not land; the files it would have registered may be deleted."""


@dataclass(eq=False, repr=False)
class FilesReleasedError(CommitError):
    """Files of a job can no longer be committed: they already were, or a clean-up released them."""

    job_id: str
    way_out: str = "run the task that wrote them again"

    template = (
        "The files of job {job_id} have already been committed or discarded by another task, or "
        "released by a clean-up of orphaned files, which waits for a job no longer than stage_ttl. "
        "Nothing was committed; {way_out}."
    )


@dataclass(eq=False, repr=False)
class TransactionConflictError(CommitError):
    """Another commit since the plan conflicts with a change of this commit."""

    ours: str
    theirs: str
    table: str
    snapshot_id: int

    template = (
        "Conflict on {table}: this commit would {ours}, and in the meantime snapshot {snapshot_id} "
        "{theirs}. Nothing was committed; rerun the task: it plans again on the newest snapshot."
    )


@dataclass(eq=False, repr=False)
class ZombieCommitError(CommitError):
    """The task was cleared and has committed again while this old attempt was still running."""

    generation: int
    newest: int
    snapshot_id: int

    template = (
        "The task was cleared, and has committed snapshot {snapshot_id} since (generation "
        "{newest}). This older attempt (generation {generation}) committed nothing, and "
        "nothing needs to be done."
    )


@dataclass(eq=False, repr=False)
class CommitRetriesExceededError(CommitError):
    """Every attempt lost the race for the next snapshot id."""

    attempts: int
    seconds: float

    template = (
        "Lost the race for the next snapshot {attempts} times in {seconds:.1f} s; nothing was "
        "committed. Rerun the task, or look for a writer that commits in a tight loop."
    )


@dataclass(eq=False, repr=False)
class CommitStateUnknownError(DuckLakeError):
    """The connection broke while COMMIT was under way: the snapshot may or may not exist."""

    snapshot_id: int
    reason: str

    template = (
        "The connection was lost during COMMIT of snapshot {snapshot_id} ({reason}): it may "
        "have been committed. Its files are kept. A retry with the same commit key finds out; without "
        "a key, look at the newest snapshots before you run it again."
    )


@dataclass(eq=False, repr=False)
class SparkJobError(DuckLakeError):
    """The Spark job failed or left no complete result; ``log`` is what Spark says of it, in its lines."""

    problem: str
    log: Sequence[str] = ()

    @classmethod
    def of_log(cls, text: str) -> SparkJobError:
        """Build the error from lines, the first of which describes the failure."""
        first, *log = text.splitlines() or [""]
        return cls(first, log)

    def _lines(self) -> Sequence[str]:
        return [self.problem, *self.log]


class ClusterUnavailableError(DuckLakeError):
    """The manager of a Spark cluster cannot be reached; the state of its applications is unknown."""

    def __init__(self, manager: str, address: str, reason: str) -> None:
        super().__init__(manager, address, reason)
        self.manager = manager
        self.address = address
        self.reason = reason

    def _text(self) -> str:
        return (
            f"Cannot reach {self.manager} at {self.address}: {self.reason}. "
            "The job may still run, and keeps its files; the next try looks for it. Check that the manager "
            "runs, and its address and login in the Spark connection."
        )


# What ends by itself, or by an administrator's hand: the same work may then succeed.
OUTAGES = (
    CatalogUnavailableError,
    LockTimeoutError,
    CatalogRefusedError,
    StorageError,
    ClusterUnavailableError,
)
