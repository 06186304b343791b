"""Work in threads: the order of what comes, how far it goes ahead, and how it ends."""

import threading
from collections.abc import Generator

import pytest

from airflow_provider_ducklake.lake.storage.files.parallel import in_threads, in_threads_ahead, made_ahead


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 100])
def test_all_come_in_their_order(count):
    numbers = list(range(count))

    assert in_threads(lambda one: one * 2, numbers) == [one * 2 for one in numbers]
    assert list(in_threads_ahead(lambda one: one * 2, numbers)) == [one * 2 for one in numbers]
    assert list(made_ahead(one for one in numbers)) == numbers


def test_no_more_than_a_few_items_are_worked_on_ahead():
    begun: list[int] = []
    found = in_threads_ahead(begun.append, range(1000))

    for _ in range(3):
        next(found)
    assert len(begun) <= 12
    found.close()
    assert len(begun) < 1000


def test_an_error_comes_where_its_item_would_have_come():
    def work(one: int) -> int:
        return 1 // (5 - one)

    def items() -> Generator[int]:
        for one in range(10):
            yield work(one)

    for found in (in_threads_ahead(work, range(10)), made_ahead(items())):
        assert [next(found) for _ in range(5)] == [0, 0, 0, 0, 1]
        with pytest.raises(ZeroDivisionError):
            next(found)


def test_items_are_made_by_one_thread_and_closed_when_nobody_wants_more():
    ended = threading.Event()
    makers: set[int] = set()

    def items() -> Generator[int]:
        try:
            for one in range(1000):
                makers.add(threading.get_ident())
                yield one
        finally:
            ended.set()

    found = made_ahead(items())
    assert [next(found), next(found)] == [0, 1]
    assert not ended.is_set()
    found.close()

    assert ended.is_set()
    assert len(makers) == 1
    assert threading.get_ident() not in makers
