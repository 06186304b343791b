"""The examples of the pages on the library, run from top to bottom, and the lakes that they leave."""

import re
from decimal import Decimal
from pathlib import Path

import pytest

from tests.interop import features
from tests.interop.lakes import by_duckdb

DOCS = Path(__file__).parents[2] / "docs"
LEFT = {
    "library.md": ("SELECT count(*), sum(amount) FROM sales.orders", (3, Decimal("3.75"))),
    "tags.md": ("SELECT count(*), sum(amount) FROM sales", (3, 60)),
    "frozen_lakes.md": ("SELECT count(*), sum(amount) FROM sales", (101, 507)),
    "reading.md": ("SELECT count(*), sum(seconds) FROM visits", (43, 66.5)),
}


@pytest.mark.parametrize("page", LEFT)
def test_the_examples_run_and_print_what_they_say(page, tmp_path, capsys):
    text = (DOCS / page).read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    code = "".join(block for block in blocks if "DAG(" not in block).replace("/data/", f"{tmp_path}/")

    exec(compile(code, page, "exec"), {})

    printed = capsys.readouterr().out.splitlines()
    promised = re.findall(r"^print\(.*\)  # (.*)$|^    print\(.*\)  # (.*)$", code, re.MULTILINE)
    for promise in filter(None, (first or second for first, second in promised)):
        assert promise in printed
    query, row = LEFT[page]
    assert by_duckdb(f"ducklake:sqlite:{tmp_path}/lake.sqlite", query) == [row]


# The table of `docs/features.md` and of the README says what is measured.


def test_the_pages_have_one_table_of_all_features():
    page, readme = (features.lines_of(one) for one in features.PAGES)

    assert page == readme
    assert [line.split(" | ")[0].removeprefix("| ") for line in page[2:]] == [
        feature.name for feature in features.FEATURES
    ]


@pytest.mark.parametrize("feature", features.FEATURES, ids=lambda one: one.name)
def test_a_line_is_what_is_measured(tmp_path, feature):
    assert features.measured(feature, tmp_path).line in features.lines_of(features.PAGES[0])
