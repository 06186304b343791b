"""Whether a snapshot says that it is a commit: anybody may have written what it says."""

import json

import pytest

from airflow_provider_ducklake.lake.spec.snapshots import CommitKey, is_claimed_in

KEY = CommitKey(("dag", 1), 2)


def test_what_a_key_says_is_said_of_its_generation_and_of_those_before_the_first():
    extra = json.dumps(KEY.extra)

    assert [is_claimed_in(extra, KEY.digest, one) for one in (1, 2, 3, 0, -7)] == [
        False,
        True,
        False,
        True,
        True,
    ]
    assert not is_claimed_in(extra, CommitKey(("dag", "1")).digest, 2)


@pytest.mark.parametrize(
    "extra",
    [
        *(None, "", "null", "1", "[]", "{", "\x00", '"commit_key"', "[" * 100_000, "9" * 10_000),
        *(
            '{"commit_key": 1}',
            '{"commit_key": null}',
            '{"commit_key": "dag"}',
            '{"commit_key": ["\\ud800"]}',
        ),
        *(
            '{"commit_key": [{}]}',
            '{"commit_key": [NaN, 1]}',
            '{"airflow": {}}',
            '{"airflow": []}',
            '{"stream": 1}',
        ),
        '{"commit_key": ["dag", 1], "commit_generation": "2"}',
    ],
)
def test_what_says_something_else_says_nothing_of_the_key(extra):
    assert not is_claimed_in(extra, KEY.digest, 2)
