"""The audit against a file of advisories: which versions it calls affected."""

import json

import pytest

from scripts.audit import affected, is_affected, locked, oldest_allowed, parsed, read_records

PROJECT = """
[project]
dependencies = ["PyMySQL>=1.1", "other>=2,!=2.1", "free"]
[project.optional-dependencies]
encryption = ["cryptography>=42.0.4; python_version > '3'"]
[dependency-groups]
dev = ["pinned==3.0", {include-group = "x"}]
"""
LOCK = """
[[package]]
name = "pymysql"
version = "1.1.2"
source = { registry = "https://index.example/simple" }
[[package]]
name = "own"
version = "0"
source = { editable = "." }
"""


def record(name: str, *events: dict[str, str], **others: object) -> dict:
    ranges = [{"type": "ECOSYSTEM", "events": list(events)}, {"type": "GIT", "events": [{"introduced": "0"}]}]
    package = {"ecosystem": "PyPI", "name": name}
    return {"id": f"X-{name}", "affected": [{"package": package, "ranges": ranges}]} | others


HOLE = record("pymysql", {"introduced": "0"}, {"fixed": "1.1.1"}, aliases=["CVE-2024-36039"])


def test_a_lower_bound_below_a_fix_is_named_and_a_locked_version_after_it_is_not():
    asked = [*oldest_allowed(PROJECT), *locked("uv.lock", LOCK)]
    old = record("cryptography", {"introduced": "38.0.0"}, {"fixed": "42.0.4"})

    assert [one[1:] for one in asked] == [
        ("pymysql", "1.1"),
        ("other", "2"),
        ("cryptography", "42.0.4"),
        ("pinned", "3.0"),
        ("pymysql", "1.1.2"),
    ]
    assert list(affected(asked, [HOLE, old])) == [
        "pyproject.toml, PyMySQL>=1.1: pymysql 1.1 is affected by X-pymysql, CVE-2024-36039; fixed in 1.1.1."
    ]


@pytest.mark.parametrize(
    ("version", "events", "expected"),
    [
        ("1.0", [{"introduced": "0"}], True),
        ("1.0", [{"introduced": "1.0"}, {"fixed": "1.1"}], True),
        ("1.1", [{"introduced": "1.0"}, {"fixed": "1.1"}], False),
        ("1.1", [{"introduced": "1.0"}, {"last_affected": "1.1"}], True),
        ("1.1.1", [{"introduced": "1.0"}, {"last_affected": "1.1"}], False),
        ("2.0", [{"introduced": "2.0"}, {"introduced": "0"}, {"fixed": "1.5"}], True),
        ("1.10", [{"introduced": "1.9"}, {"fixed": "1.11"}], True),
        ("1.5", [{"introduced": "0"}, {"fixed": "1.5"}, {"introduced": "2.0"}], False),
    ],
)
def test_ranges_are_ordered_as_python_orders_versions(version, events, expected):
    assert is_affected(parsed(version), record("p", *events)["affected"][0]) is expected


def test_records_are_read_as_a_list_or_by_lines_without_those_withdrawn():
    records = [HOLE, record("p", withdrawn="2024-01-01T00:00:00Z")]

    assert read_records(json.dumps(records)) == [HOLE]
    assert read_records("\n".join(map(json.dumps, records))) == [HOLE]
    for wrong in ("[]", "[1]", '{"vulns": []}', '[{"id": "x"}]'):
        with pytest.raises(SystemExit, match="no list of OSV records"):
            read_records(wrong)


def test_other_ecosystems_and_names_are_left_alone():
    npm = {"id": "N", "affected": [{"package": {"ecosystem": "npm", "name": "pymysql"}, "versions": ["1.1"]}]}
    listed = {
        "id": "L",
        "affected": [{"package": {"ecosystem": "PyPI", "name": "Py_MySQL"}, "versions": ["1.1"]}],
    }

    assert list(affected([("here", "pymysql", "1.1")], [npm])) == []
    assert len(list(affected([("here", "py-mysql", "1.1")], [listed]))) == 1
