"""The exceptions: their tree, and that they travel between processes."""

import pickle
import re
import unicodedata
from datetime import UTC, datetime

import pytest

from airflow_provider_ducklake import errors
from airflow_provider_ducklake.errors import (
    AlreadyExistsError,
    CatalogMigratedError,
    CatalogRefusedError,
    CatalogUnavailableError,
    ChangesExpiredError,
    ChangesUndoneError,
    ClusterUnavailableError,
    ColumnNotFoundError,
    CommitRetriesExceededError,
    CommitStateUnknownError,
    DuckLakeError,
    ExportExistsError,
    FilesGivenUpError,
    FilesNotDeletedError,
    InvalidPredicateError,
    InvalidStatementError,
    InvalidValueError,
    LockTimeoutError,
    MacroNotFoundError,
    NotADuckLakeError,
    SchemaMismatchError,
    SchemaNotFoundError,
    SharedDataPathError,
    SnapshotNotFoundError,
    SnapshotTaggedError,
    SourceNotFoundError,
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
from airflow_provider_ducklake.spec.names.identifiers import QualifiedName

CLASSES = [
    value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, DuckLakeError)
]
WITH_FIELDS = [
    NotADuckLakeError("sqlite:///x"),
    UnsupportedVersionError("0.3", ["1.0"]),
    CatalogMigratedError("1.0", "1.1"),
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
    SchemaMismatchError("s.t", ["c is missing"]),
    InvalidValueError("s.t", ["column c: 1 value is not valid JSON, such as ''"], ["Make them JSON."]),
    FilesGivenUpError("01a20243"),
    TransactionConflictError("insert into it", "dropped it", "s.t", 4),
    ZombieCommitError(1, 2, 9),
    CommitRetriesExceededError(30, 1.5),
    LockTimeoutError("sqlite:////data/lake.sqlite", 2.5, "the process 4711 on host worker-1"),
    CommitStateUnknownError(7, "OperationalError"),
    UntrustedValueError("/lake/ducklake-1/_DONE", "../x", "is not the name of a job's document"),
    FilesNotDeletedError(3, ["/lake/a.parquet: Permission denied"]),
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
        for part in value if isinstance(value, tuple) else [value]:
            assert str(part) in str(error)


def test_the_tree_in_the_docstring_is_the_tree_of_the_classes():
    drawn: list[str] = []
    above: list[str] = []
    for line in errors.__doc__.splitlines():
        found = re.match(r"([│├└─ ]*)(\w+Error)( \(also ValueError\))?$", line)
        if found:
            depth = len(found[1]) // 3
            above = [*above[:depth], found[2]]
            also = " ValueError" if found[3] else ""
            drawn.append(f"{above[depth - 1] if depth else 'Exception'}{also} > {found[2]}")

    real = [f"{' '.join(base.__name__ for base in one.__bases__)} > {one.__name__}" for one in CLASSES]

    assert drawn == real


HOSTILE = "x\n[2026-11-26] ERROR - call us\x1b[31m\x1b]0;t\x07\r\x85\u2028\u202e\u2066"


@pytest.mark.parametrize(
    "error",
    [
        errors.InvalidInputError(f"Column {HOSTILE} is not there. Correct the name."),
        errors.TableNotFoundError(str(QualifiedName.of(("main", HOSTILE))), 3),
        errors.ColumnNotFoundError(HOSTILE, "main.t", [HOSTILE, "b"]),
        errors.SchemaMismatchError("main.t", [f"column {HOSTILE} is not in the table"]),
        errors.TransactionConflictError(f"rename {HOSTILE}", f"dropped {HOSTILE}", "main.t", 3),
        errors.InvalidValueError("main.t", [f"{HOSTILE}: 1 value"]),
        errors.FilesNotDeletedError(1, [f"/lake/{HOSTILE}: no"]),
        errors.StorageError(f"Cannot read /lake/{HOSTILE[:1]}{HOSTILE[2:]}."),
    ],
    ids=lambda error: type(error).__name__,
)
def test_no_name_ends_a_line_or_controls_a_terminal(error):
    text = str(error)

    assert "call us" in text
    assert [one for one in text.splitlines() if one.startswith("[")] == []
    assert not [char for char in text if unicodedata.category(char) in ("Cc", "Cf", "Zl") and char != "\n"]


def test_other_names_are_shown_as_they_are():
    assert str(errors.InvalidInputError("Column Straße 日本 é 😀 is not there.")) == (
        "Column Straße 日本 é 😀 is not there."
    )


def test_an_error_of_a_list_keeps_its_lines():
    assert str(errors.InvalidInputError("Not these:\n  - a\n  - b")).splitlines() == [
        "Not these:",
        "  - a",
        "  - b",
    ]
    assert str(errors.SparkJobError("The job failed.\nat line 2")).count("\n") == 1
