"""Which tries of a task make the same commit: the numbers that Airflow gives, as seen on running ones."""

from collections.abc import Iterator
from contextlib import ExitStack, suppress
from uuid import UUID, uuid4

import pyarrow as pa
import pytest
from airflow.sdk import BaseOperator

from airflow_provider_ducklake.hooks.task import commit_identity, default_namespace, generation
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.errors import InvalidInputError
from airflow_provider_ducklake.lake.format.snapshots import CommitInfo
from airflow_provider_ducklake.lake.planning.writing.write import WriteResult, append_to_existing, plan_write
from tests.concurrency.arrow_jobs import write
from tests.interop.lakes import alone


@pytest.mark.parametrize(
    ("retries", "tries"),
    [
        pytest.param(2, [(1, 2, 1), (2, 2, 1), (3, 2, 1)], id="first run, two retries"),
        pytest.param(2, [(1, 2, 1), (2, 3, 2)], id="success, Clear"),
        pytest.param(0, [(1, 0, 1), (2, 1, 2)], id="no retries, Clear"),
        pytest.param(None, [(1, 0, 1), (2, 1, 2)], id="retries unset, Clear"),
        pytest.param(2, [(1, 2, 1), (2, 2, 1), (3, 4, 3), (4, 4, 3)], id="Clear, then a retry"),
        pytest.param(2, [(1, 2, 1), (2, 2, 1), (3, 2, 1), (4, 5, 4)], id="failed, Clear failed"),
        pytest.param(2, [(2, 3, 2), (3, 4, 3)], id="cleared while running"),
        pytest.param(2, [(4, 5, 4), (5, 6, 5)], id="marked failed while running, Clear"),
        pytest.param(1, [(1, 1, 1), (2, 2, 2), (3, 3, 3)], id="run cleared again and again"),
        pytest.param(5, [(2, 2, 1)], id="retries raised in flight: a retry"),
        pytest.param(0, [(2, 2, 2), (3, 3, 3)], id="retries lowered in flight: replaced, and clearable"),
    ],
)
def test_a_generation_is_the_first_try_since_the_last_clear(retries, tries):
    for try_number, max_tries, expected in tries:
        assert generation(try_number, max_tries, retries) == expected


class FakeTaskInstance:
    dag_id, run_id, task_id, map_index, try_number, max_tries = "dag", "run", "task", 3, 4, 5
    log_url = "http://localhost:8080/dags/dag"
    id = UUID(int=7)
    task = BaseOperator(task_id="task", retries=2)


def identity_of(operator: BaseOperator = FakeTaskInstance.task, namespace: str | None = None, part: int = 0):
    return commit_identity({"ti": FakeTaskInstance()}, operator, namespace, part)


def test_the_identity_names_the_task_and_its_try():
    identity = identity_of(namespace="prod", part=1)

    assert (identity.key.names, identity.key.generation) == (("prod", "dag", "run", "task", 3, 1), 4)
    assert not identity.starts_over
    assert identity.extra == {
        "airflow": {
            "dag_id": "dag",
            "run_id": "run",
            "task_id": "task",
            "map_index": 3,
            "try_number": 4,
            "logical_date": None,
            "log_url": "http://localhost:8080/dags/dag",
            "namespace": "prod",
            "part": 1,
            "generation": 4,
        }
    }


def test_an_airflow_is_told_from_others_by_its_address(monkeypatch):
    namespaces = [default_namespace()]
    for url in ("https://one.example.com", "https://one.example.com/", "https://two.example.com"):
        monkeypatch.setenv("AIRFLOW__API__BASE_URL", url)
        namespaces.append(default_namespace())

    assert namespaces[1] == namespaces[2]
    assert len(set(namespaces)) == 3
    assert identity_of().key.names[0] == namespaces[-1]


def test_an_operator_that_another_task_executes_has_its_own_key_and_the_tasks_retries():
    identity = identity_of(BaseOperator(task_id="inner", retries=0), "prod")

    assert identity.key.names == ("prod", "dag", "run", "task", 3, 0, "inner")
    assert identity.key.generation == identity_of().key.generation
    assert (identity.task, identity.message) == ("dag.task[3]:inner", "dag.task")


def test_no_two_tasks_have_the_same_name():
    names = set()
    for dag_id, task_id, operator_id in [
        ("a", "b", "b"),
        ("a", "b.c", "b.c"),
        ("a.b", "c", "c"),
        ("a", "b", "c"),
        ("a.b", "c.d", "c.d"),
        ("a.b.c", "d", "d"),
        ("a", "b.c.d", "b.c.d"),
        ("a", "b.c", "d"),
    ]:
        instance = FakeTaskInstance()
        instance.dag_id, instance.task_id, instance.map_index = dag_id, task_id, -1
        names.add(commit_identity({"ti": instance}, BaseOperator(task_id=operator_id), "prod").task)

    assert len(names) == 8


class FirstTry(FakeTaskInstance):
    map_index, try_number, max_tries = -1, 1, 2

    def __init__(self) -> None:
        self.id = uuid4()


def make(lake: Lake, ti: FirstTry, operator_id: str = "task", *, fails: bool = False) -> bool | None:
    """Execute an operator that adds a row; return whether it found it there, None where it fails."""
    identity = commit_identity({"ti": ti}, BaseOperator(task_id=operator_id, retries=2), "prod")
    with suppress(KeyError), identity.made_once(lake) as once:
        keyed = once.keyed_commit(lake)
        base = lake.current_snapshot().id
        if not keyed.seen.done:
            appended = append_to_existing(lake.table_snapshot("t"), written(lake))
            lake.committer.commit(
                base, (*lake.writes.replaced_rows(keyed.seen, base), *appended), CommitInfo(), keyed=keyed
            )
        if fails:
            raise KeyError
        return bool(keyed.seen.done)
    return None


def written(lake: Lake) -> WriteResult:
    target = lake.table_snapshot("t")
    return write(plan_write(target, f"{target.root}ducklake-{uuid4()}/"), pa.table({"i": [1]}))


@pytest.fixture
def lakes(new_catalog) -> Iterator[list[Lake]]:
    catalogs = [new_catalog("sqlite") for _ in range(2)]
    with ExitStack() as stack:
        lakes = [stack.enter_context(Lake.create(one.sqlalchemy_url, one.data_path)) for one in catalogs]
        for lake in lakes:
            alone(lake).create_table("t", {"i": "int64"})
        yield lakes


def counts(lakes: list[Lake]) -> list[int]:
    return [lake.read_arrow("t").num_rows for lake in lakes]


def test_a_commit_is_made_once_in_a_try(lakes):
    ti = FirstTry()
    make(lakes[0], ti)

    with pytest.raises(InvalidInputError, match=r"operator 'task' .* in this try of task 'task'"):
        make(lakes[0], ti)
    make(lakes[0], ti, "another")

    assert counts(lakes) == [2, 0]


def test_one_operator_may_write_to_several_lakes(lakes):
    ti = FirstTry()

    assert [make(lake, ti) for lake in lakes] == [False, False]

    assert counts(lakes) == [1, 1]
    again = FirstTry()
    again.try_number = 2
    assert [make(lake, again) for lake in lakes] == [True, True]


def test_a_lake_is_the_same_by_whatever_address(lakes, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "lake_1")
    url = lakes[0].opened.catalog.dialect.engine.url
    ti = FirstTry()
    make(lakes[0], ti)

    with (
        Lake.connect(url.set(database=url.database.replace("/lake_1/", "/link/"))) as linked,
        pytest.raises(InvalidInputError, match="has already been executed"),
    ):
        make(linked, ti)

    assert counts(lakes) == [1, 0]


def test_what_failed_after_its_commit_finds_it_when_it_is_called_again_in_the_first_try(lakes):
    ti = FirstTry()
    assert make(lakes[0], ti, fails=True) is None

    assert make(lakes[0], ti) is True

    assert counts(lakes) == [1, 0]


def test_a_first_try_takes_what_it_finds_for_the_commit_of_a_deleted_run(lakes):
    make(lakes[0], FirstTry())

    assert make(lakes[0], FirstTry(), fails=True) is None
    assert make(lakes[0], FirstTry()) is False

    assert counts(lakes) == [1, 0]


def test_a_look_up_that_fails_is_no_start(lakes):
    make(lakes[0], FirstTry())
    identity = commit_identity({"ti": (ti := FirstTry())}, FakeTaskInstance.task, "prod")
    with suppress(KeyError), identity.made_once(lakes[0]):
        raise KeyError

    assert make(lakes[0], ti) is False
