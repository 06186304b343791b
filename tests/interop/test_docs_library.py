"""The examples of `docs/library.md`, run from top to bottom, and the lake they leave as DuckDB sees it."""

import re
from decimal import Decimal
from pathlib import Path

from tests.reference.duckdb_lake import open_lake

PAGE = Path(__file__).parents[2] / "docs" / "library.md"


def test_the_examples_run_and_print_what_they_say(tmp_path, capsys):
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    code = "".join(blocks).replace("/data/", f"{tmp_path}/")

    exec(compile(code, str(PAGE), "exec"), {})

    printed = capsys.readouterr().out.splitlines()
    promised = re.findall(r"^print\(.*\)  # (.*)$|^    print\(.*\)  # (.*)$", code, re.MULTILINE)
    for promise in filter(None, (first or second for first, second in promised)):
        assert promise in printed
    with open_lake(f"ducklake:sqlite:{tmp_path}/lake.sqlite") as lake:
        assert lake.sql("SELECT count(*), sum(amount) FROM sales.orders") == [(3, Decimal("3.75"))]
