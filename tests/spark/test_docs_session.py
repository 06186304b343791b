"""The examples of the page on `LakeSession`, run from top to bottom, and the lake that they leave."""

import re
from pathlib import Path

import pytest

from tests.reference.duckdb_lake import open_lake

PAGE = Path(__file__).parents[2] / "docs" / "session.md"


@pytest.mark.classic_only("the page starts a session of a JVM")
@pytest.mark.usefixtures("spark")  # which the page gets
def test_the_examples_run_and_print_what_they_say(tmp_path, capsys):
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    code = "".join(blocks).replace("/data/", f"{tmp_path}/")

    exec(compile(code, PAGE.name, "exec"), {})

    promised = re.findall(r"^print\(.*\)  # (.*)$", code, re.MULTILINE)
    assert capsys.readouterr().out.splitlines() == promised
    with open_lake(f"ducklake:sqlite:{tmp_path}/lake.sqlite") as lake:
        assert lake.sql("SELECT id, price FROM orders ORDER BY id") == [(2, 1.0), (3, 2.0), (3, 2.0)]
