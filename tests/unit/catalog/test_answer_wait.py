"""How long an answer is waited for that comes in pieces."""

import pytest

from airflow_provider_ducklake.lake.catalog.database.connect import AnswerWait

KIB = 1024
NEAR = 60.0  # seconds that a test may take between two lines


@pytest.fixture
def wait() -> AnswerWait:
    begun = AnswerWait()
    begun.begin(1000)
    return begun


def test_a_byte_now_and_then_buys_no_time(wait):
    for _ in range(1000):
        wait.heard(1)

    assert wait.left < 1001


def test_an_answer_of_64_kib_a_second_has_the_time_that_it_takes(wait):
    wait.heard(3000 * 64 * KIB)

    assert wait.left == pytest.approx(4000, abs=NEAR)


def test_no_answer_is_waited_for_beyond_ten_limits(wait):
    wait.heard(2**40)

    assert wait.left == pytest.approx(10_000, abs=NEAR)


def test_the_next_statement_has_its_whole_limit_and_no_more(wait):
    wait.heard(2**40)
    wait.begin(10)

    assert wait.left <= 10
