"""The exceptions: their tree, and that they travel between processes."""

import pickle
import unicodedata
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from airflow_provider_ducklake.lake import errors
from airflow_provider_ducklake.lake.errors import (
    AlreadyExistsError,
    CatalogAddressError,
    CatalogMigratedError,
    CatalogRefusedError,
    CatalogUnavailableError,
    ChangesExpiredError,
    ChangesUndoneError,
    ClusterUnavailableError,
    ColumnNotFoundError,
    CommitRetriesExceededError,
    CommitStateUnknownError,
    CounterBehindError,
    DuckLakeError,
    EmptySourceError,
    ExportExistsError,
    FilesNotDeletedError,
    FilesReleasedError,
    InvalidPredicateError,
    InvalidStatementError,
    InvalidValueError,
    LockTimeoutError,
    MacroNotFoundError,
    MigrationRefusedError,
    NotADuckLakeError,
    QueryTableError,
    SchemaMismatchError,
    SchemaNotFoundError,
    SharedDataPathError,
    SnapshotNotFoundError,
    SnapshotTaggedError,
    SourceNotFoundError,
    SparkJobError,
    TableNotFoundError,
    TagExistsError,
    TaggedSnapshotLostError,
    TagNotFoundError,
    TransactionConflictError,
    UnsupportedVersionError,
    UntrustedValueError,
    ViewNotFoundError,
    ZombieCommitError,
)

CLASSES = [
    value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, DuckLakeError)
]
WITH_FIELDS = [
    CounterBehindError("next_catalog_id", 3, 6, 7),
    NotADuckLakeError("sqlite:///x"),
    UnsupportedVersionError("0.3", ["1.0"]),
    CatalogMigratedError("1.0", "1.1"),
    MigrationRefusedError("1.1", ["a view has no SQL"]),
    CatalogAddressError("postgresql://u@h/d", "no such database"),
    CatalogUnavailableError("postgresql://h/d", "no route"),
    CatalogRefusedError("postgresql://h/d", "disk full", "INSERT INTO t"),
    SchemaNotFoundError("s", 3),
    TableNotFoundError("s.t", 3),
    ViewNotFoundError("s.v", 3),
    MacroNotFoundError("s.m", 3),
    ColumnNotFoundError("c", "s.t", ["a", "b"]),
    SnapshotNotFoundError("version 9", 1, 5),
    ChangesExpiredError("sales.orders", 3, 9, 7),
    ChangesUndoneError("sales.orders", 9, 12),
    TagNotFoundError("q3-close", ["q1", "q2"]),
    TaggedSnapshotLostError("q3-close", 7, datetime(2026, 1, 1, tzinfo=UTC)),
    TagExistsError("tag", "q3-close", 7, 9),
    ExportExistsError("file", "/backup/q3.ducklake"),
    SnapshotTaggedError(["7 ('q3-close')"]),
    SnapshotNotFoundError("noon", 1, 5, (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC))),
    AlreadyExistsError("table", "s.t"),
    ClusterUnavailableError("the Spark master", "http://m:6066", "ConnectTimeout"),
    SourceNotFoundError("source", "/in/a.csv"),
    InvalidStatementError(2, 1, 14, "'FOO'", "expected a name."),
    InvalidPredicateError(1, 14, "'FOO'", "filters have no such operator."),
    QueryTableError("s.t", ["orders"]),
    EmptySourceError(["s.t"]),
    SchemaMismatchError("s.t", ["c is missing"]),
    InvalidValueError("s.t", ["column c: 1 value is not valid JSON, such as ''"], ["Make them JSON."]),
    FilesReleasedError("01a20243"),
    TransactionConflictError("insert into it", "dropped it", "s.t", 4),
    ZombieCommitError(1, 2, 9),
    CommitRetriesExceededError(30, 1.5),
    LockTimeoutError("sqlite:////data/lake.sqlite", 2.5, "the process 4711 on host worker-1"),
    CommitStateUnknownError(7, "OperationalError"),
    UntrustedValueError("/lake/ducklake-1/_DONE", "../x", "is not the name of a job's document"),
    FilesNotDeletedError(3, ["/lake/a.parquet: Permission denied"]),
    SparkJobError("The job failed.", ["Traceback"]),
    SharedDataPathError("/lake/", "another lake's mark lies there."),
]
ALL = [*WITH_FIELDS, *(one("the text") for one in CLASSES if "__init__" not in vars(one))]


def test_every_class_is_covered_here():
    assert {type(error) for error in ALL} == set(CLASSES)


@pytest.mark.parametrize("error", ALL, ids=lambda error: type(error).__name__)
def test_an_error_pickles_with_its_text_and_fields(error):
    copy = pickle.loads(pickle.dumps(error))

    assert type(copy) is type(error)
    assert (str(copy), copy.args, vars(copy)) == (str(error), error.args, vars(error))


@pytest.mark.parametrize("error", WITH_FIELDS, ids=lambda error: type(error).__name__)
def test_a_message_holds_every_field(error):
    for value in vars(error).values():
        for part in value if isinstance(value, tuple) else [] if isinstance(value, bool) else [value]:
            assert str(part) in str(error)


def test_a_class_stands_behind_its_base():
    for place, one in enumerate(CLASSES):
        assert one.__bases__[0] in {Exception, *CLASSES[:place]}


HOSTILE = "x\n[2026-11-26] ERROR - call us\x1b[31m\x1b]0;t\x07\r\x85\u2028\u202e\u2066"


def planted(error, text: str) -> Iterator[DuckLakeError]:
    """Yield an error again for each of its texts, which then is another one; an int or a time stays."""
    arguments = list(error.args)
    for place, value in enumerate(arguments):
        if isinstance(value, (str, tuple)):
            other = (text, "b") if isinstance(value, tuple) else text
            if not isinstance(value, tuple) or all(isinstance(one, str) for one in value):
                yield type(error)(*arguments[:place], other, *arguments[place + 1 :])


@pytest.mark.parametrize("error", ALL, ids=lambda error: type(error).__name__)
def test_no_value_ends_a_line_or_controls_a_terminal(error):
    for hostile in planted(error, HOSTILE):
        text = str(hostile)

        assert not [line for line in text.splitlines() if line.lstrip().startswith("[2026")]
        assert not [
            char for char in text if unicodedata.category(char) in ("Cc", "Cf", "Zl") and char != "\n"
        ]


@pytest.mark.parametrize("error", ALL, ids=lambda error: type(error).__name__)
def test_only_the_first_line_of_an_error_begins_as_records_of_a_log_do(error):
    assert all(line.startswith("  ") for line in str(error).splitlines()[1:])


@pytest.mark.parametrize("error", ALL, ids=lambda error: type(error).__name__)
def test_an_error_of_a_value_without_an_end_is_short(error):
    for long in planted(error, f"begin{'x' * 100_000}end"):
        assert len(str(long)) < 3_000


def test_an_error_that_is_cut_says_so_and_keeps_its_end():
    error = errors.TableNotFoundError("x" * 100_000, 3)

    assert "xxx…(98" in str(error)
    assert " more characters)…xxx" in str(error)
    assert str(error).endswith("; an insert with create_table=True creates it.")


def test_a_note_stays_on_one_line():
    error = errors.CatalogError("no")
    error.add_note(HOSTILE)

    assert len(error.__notes__[0].splitlines()) == 1


def test_other_names_are_shown_as_they_are():
    assert str(errors.InvalidInputError("Column Straße 日本 é 😀 is not there.")) == (
        "Column Straße 日本 é 😀 is not there."
    )


def test_an_error_of_a_list_keeps_its_lines():
    assert str(errors.MigrationRefusedError("1.1", ["a", "b"])).splitlines() == [
        "The catalog cannot be migrated to DuckLake 1.1; nothing was changed:",
        "  - a",
        "  - b",
        "  Then migrate again.",
    ]
    assert str(errors.SparkJobError.of_log("The job failed.\nTraceback:\n  File x")).splitlines() == [
        "The job failed.",
        "  Traceback:",
        "    File x",
    ]
