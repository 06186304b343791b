"""What the kinds of changes say of themselves is complete: each test names a place that was forgotten."""

import ast
import inspect
import pkgutil
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from importlib import import_module
from typing import ClassVar, get_args

import pytest

from airflow_provider_ducklake.lake.catalog import effects
from airflow_provider_ducklake.lake.catalog.committing import locked_facts
from airflow_provider_ducklake.lake.errors import TransactionConflictError, ZombieCommitError
from airflow_provider_ducklake.lake.format import snapshots as ids
from airflow_provider_ducklake.lake.format.names.identifiers import MAIN, QualifiedName, SchemaPath
from airflow_provider_ducklake.lake.format.snapshots import SchemaId, SnapshotId, TableId
from airflow_provider_ducklake.lake.transaction import kinds
from airflow_provider_ducklake.lake.transaction.changes import (
    Change,
    CommentOnTable,
    CreateSchema,
    DropSchema,
    DropTable,
    NewSchemaRef,
    NewTableRef,
    RenameTable,
    Truncate,
)
from airflow_provider_ducklake.lake.transaction.changes_made import (
    ChangeKind,
    ChangeRecord,
    Replay,
    parse_changes,
    replay_of,
)
from airflow_provider_ducklake.lake.transaction.conflicts import (
    CONFLICTS,
    Claim,
    Operation,
    Rule,
    check_conflicts,
    claim_of_new,
    rule_of,
)
from airflow_provider_ducklake.lake.transaction.declared import ChangeBase, CommitPhase, Needs

NAME = QualifiedName.of(("main", "t"))


def declared_kinds() -> set[type]:
    modules = [import_module(f"{kinds.__name__}.{one.name}") for one in pkgutil.iter_modules(kinds.__path__)]
    classes = [(module, one) for module in modules for _, one in inspect.getmembers(module, inspect.isclass)]
    return {
        one for module, one in classes if issubclass(one, ChangeBase) and one.__module__ == module.__name__
    }


def attributes_of(name: str, module) -> set[str]:
    tree = ast.parse(inspect.getsource(module))
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    return {node.attr for node in nodes if isinstance(node.value, ast.Name) and node.value.id == name}


def test_every_kind_is_a_change():
    assert declared_kinds() == set(get_args(Change))


def test_every_kind_has_effects():
    assert {*get_args(Change), object} == effects.effects_of.registry.keys()


def test_a_kind_that_does_not_say_what_it_does_cannot_be_made():
    @dataclass(frozen=True, slots=True)
    class Forgetful(ChangeBase):
        phase: ClassVar[CommitPhase] = CommitPhase.DEFINE

    with pytest.raises(TypeError, match=r"method .?claim"):
        Forgetful()


@pytest.mark.parametrize("kind", get_args(Change))
def test_what_a_kind_says_of_itself_is_asked_of_all(kind):
    own = {name for name, type_ in vars(kind).get("__annotations__", {}).items() if "ClassVar" in type_}

    assert own <= {name for base in kind.__mro__[1:] for name in vars(base)}


def test_every_need_is_answered():
    assert {one.name for one in fields(Needs)} == attributes_of("needs", locked_facts)


def test_every_pair_is_free_or_a_conflict():
    assert list(CONFLICTS) == list(Operation)
    for operation, row in CONFLICTS.items():
        assert set(row) == set(ChangeKind), operation
        assert Rule.SAME_OBJECT not in row.values(), operation


def conflicts(own: Claim, record: ChangeRecord) -> bool:
    try:
        check_conflicts([own], [(SnapshotId(7), record)])
    except TransactionConflictError:
        return True
    return False


@pytest.mark.parametrize("operation", Operation)
def test_a_word_of_a_newer_client_conflicts_with_all_that_touches_its_object(operation):
    own = Claim(operation, NAME, 5)

    assert rule_of(operation, None) is Rule.SAME_OBJECT
    for text, is_conflict in {
        "reticulated:5": True,
        "reticulated:6": False,
        'reticulated:"MAIN"."T"': True,
        'reticulated:"main"."u"': False,
    }.items():
        (record,) = parse_changes(text)
        assert conflicts(own, record) is is_conflict, text


def test_a_word_of_a_newer_client_conflicts_with_what_is_created_or_dropped_around_it():
    new = claim_of_new(NAME, SchemaId(3))
    renamed = RenameTable(TableId(5), NAME, QualifiedName.of(("main", "u"))).claim
    dropped = DropSchema(SchemaId(3), MAIN).claim
    (in_schema,) = parse_changes('reticulated:"main"."u"')
    (of_schema,) = parse_changes("reticulated:3")
    (named_schema,) = parse_changes('reticulated:"main"')

    assert conflicts(new, of_schema)
    assert not conflicts(new, in_schema)
    assert conflicts(renamed, in_schema)
    assert not conflicts(renamed, of_schema)
    assert all(conflicts(dropped, one) for one in (in_schema, of_schema, named_schema))
    assert conflicts(CreateSchema(NewSchemaRef(0), SchemaPath(("Main",)), "").claim, named_schema)


def test_a_pair_that_no_rule_names_is_a_conflict_on_the_same_object(monkeypatch):
    monkeypatch.setitem(CONFLICTS, Operation.INSERT, {})

    assert conflicts(Claim(Operation.INSERT, NAME, 5), ChangeRecord(ChangeKind.MERGE_ADJACENT, 5))
    assert not conflicts(Claim(Operation.INSERT, NAME, 5), ChangeRecord(ChangeKind.MERGE_ADJACENT, 6))


def test_what_only_the_transaction_knows_conflicts_with_nothing():
    assert CommentOnTable(NewTableRef(0), NAME, "x").claim is None
    assert CommentOnTable(TableId(5), NAME, "x").claim == Claim(Operation.ALTER, NAME, 5)


def test_needs_of_several_changes_are_asked_once():
    changes = [DropTable(TableId(1), NAME), Truncate(TableId(2), NAME), DropTable(TableId(1), NAME)]

    assert Needs.of_all(one.needs for one in changes) == Needs(
        table_names=(1,), live_inlined=(TableId(2),), live_files=(TableId(2),)
    )


# --- what the records of a key mean for its next commit; what comes of it stands in tests/concurrency ---

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def record(generation: int, table_id: int = 1) -> ids.CommitRecord:
    return ids.CommitRecord(generation, ids.TableId(table_id), ids.SnapshotId(generation + 10), 0, 3, NOW)


FIRST, SECOND, SECOND_TABLE, EARLIER = record(1), record(2), record(2, 5), record(-1)


@pytest.mark.parametrize(
    ("found", "generation", "on_clear", "expected"),
    [
        ([], 1, ids.OnClear.REPLACE, Replay()),
        ([], 1, ids.OnClear.SKIP, Replay()),
        ([FIRST], 1, ids.OnClear.REPLACE, Replay(done=(FIRST,))),
        ([FIRST], 1, ids.OnClear.APPEND, Replay(done=(FIRST,))),
        ([FIRST], 2, ids.OnClear.REPLACE, Replay(replaced=(FIRST,))),
        ([FIRST], 2, ids.OnClear.APPEND, Replay()),
        ([FIRST], 2, ids.OnClear.SKIP, Replay(done=(FIRST,))),
        ([FIRST, SECOND, SECOND_TABLE], 2, ids.OnClear.REPLACE, Replay(done=(SECOND, SECOND_TABLE))),
        ([FIRST, SECOND, SECOND_TABLE], 5, ids.OnClear.REPLACE, Replay(replaced=(SECOND, SECOND_TABLE))),
        ([EARLIER], 1, ids.OnClear.REPLACE, Replay(replaced=(EARLIER,))),
        ([EARLIER, FIRST], 1, ids.OnClear.REPLACE, Replay(done=(FIRST,))),
        ([EARLIER, FIRST], 2, ids.OnClear.REPLACE, Replay(replaced=(FIRST,))),
    ],
)
def test_the_newest_generation_decides(found, generation, on_clear, expected):
    assert replay_of(found, ids.CommitKey(("k",), generation), on_clear) == expected


def nothing(generation: int) -> ids.CommitRecord:
    return ids.CommitRecord(generation, None, ids.SnapshotId(generation + 10), 0, 0, NOW)


def restored(at: int, as_of: int, table_id: int = 1, source: int | None = None) -> ids.RestoredTable:
    source = table_id if source is None else source
    return ids.RestoredTable(
        ids.TableId(table_id), ids.SnapshotId(at), ids.TableId(source), ids.SnapshotId(as_of)
    )


THIRD = record(3)  # a generation commits ten snapshots after its number


@pytest.mark.parametrize(
    ("found", "restores", "expected"),
    [
        ([FIRST, SECOND], [restored(13, 11)], [(1, 1)]),
        ([FIRST, SECOND], [restored(13, 10)], []),
        ([FIRST, SECOND], [restored(13, 12)], [(2, 1)]),
        ([FIRST, SECOND], [restored(13, 11), restored(14, 12)], [(2, 1)]),
        ([FIRST, SECOND], [restored(13, 11), restored(14, 13)], [(1, 1)]),
        ([FIRST, SECOND], [restored(14, 11), restored(16, 15), restored(18, 13)], [(2, 1)]),
        ([FIRST, SECOND, record(5)], [restored(13, 11), restored(16, 14)], [(1, 1)]),
        ([FIRST, SECOND], [restored(13, 11, table_id=7)], [(2, 1)]),
        ([FIRST, SECOND, SECOND_TABLE], [restored(13, 11)], [(1, 1), (2, 5)]),
        ([record(1, 5), SECOND], [restored(13, 11, table_id=5)], [(2, 1), (1, 5)]),
        ([record(1, 5), SECOND], [], [(2, 1)]),
        ([FIRST, nothing(2)], [], []),
        ([FIRST, nothing(2)], [restored(13, 11)], [(1, 1)]),
        ([FIRST, SECOND], [restored(14, 11, 9, source=1)], [(1, 9)]),
        ([FIRST, SECOND], [restored(14, 12, 9, source=1)], [(2, 9)]),
        ([FIRST, SECOND, record(5, 9)], [restored(14, 12, 9, source=1)], [(5, 9)]),
        ([FIRST, record(5, 9)], [restored(14, 12, 9, source=1), restored(16, 14, 9)], [(1, 9)]),
        ([FIRST, record(5, 9)], [restored(14, 12, 9, source=1), restored(17, 16, 12, source=9)], [(5, 12)]),
        ([FIRST, record(5, 9)], [restored(14, 12, 9, source=1), restored(17, 14, 12, source=9)], [(1, 12)]),
        ([record(-2), EARLIER], [restored(13, 8)], [(-2, 1)]),
        ([record(-2), EARLIER, THIRD], [restored(14, 9)], [(-1, 1)]),
    ],
)
def test_what_a_restore_brought_back_is_replaced_and_what_it_undid_is_not(found, restores, expected):
    replaced = replay_of(found, ids.CommitKey(("k",), 99), ids.OnClear.REPLACE, restores).replaced

    assert [(one.generation, one.table_id) for one in replaced] == expected


def test_a_commit_that_a_restore_undid_is_not_made_again_by_a_retry():
    restores = [restored(13, 10)]

    assert replay_of([SECOND], ids.CommitKey(("k",), 2), ids.OnClear.REPLACE, restores) == Replay(
        done=(SECOND,)
    )
    assert replay_of([SECOND], ids.CommitKey(("k",), 3), ids.OnClear.SKIP, restores) == Replay(done=(SECOND,))


@pytest.mark.parametrize("on_clear", list(ids.OnClear))
def test_a_newer_generation_forbids_the_commit(on_clear):
    with pytest.raises(ZombieCommitError, match=r"snapshot 12 since \(generation 2\)"):
        replay_of([FIRST, SECOND], ids.CommitKey(("k",), 1), on_clear)


def test_names_that_look_alike_are_different_keys():
    digests = {
        ids.CommitKey(names).digest for names in [("a", "b"), ("a,b",), ("a", 1), ("a", "1"), ('a","b',)]
    }

    assert len(digests) == 5
    assert all(len(digest) == 64 for digest in digests)
    assert ids.CommitKey(("a",), 2).digest == ids.CommitKey(("a",)).digest
