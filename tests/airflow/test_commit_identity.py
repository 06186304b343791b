"""Which tries of a task make the same commit: the numbers that Airflow gives, as seen on running ones."""

from uuid import UUID

import pytest
from airflow.sdk import BaseOperator

from airflow_provider_ducklake.errors import InvalidInputError
from airflow_provider_ducklake.hooks.commit_identity import commit_identity, default_namespace, generation


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
    assert (identity.task, identity.message) == ("dag.task[3].inner", "dag.task")


def test_a_commit_is_made_once_in_a_try_and_what_failed_may_go_on():
    identity = identity_of(BaseOperator(task_id="once"))
    with pytest.raises(KeyError), identity.made_once():
        raise KeyError
    with identity.made_once():
        pass

    with (
        pytest.raises(InvalidInputError, match=r"operator 'once' .* in this try of task 'task'"),
        identity.made_once(),
    ):
        pass
    with identity_of(BaseOperator(task_id="twice")).made_once():
        pass
