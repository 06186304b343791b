"""Nothing that users type, import, read or catch changes by accident."""

import json
import re

from tests.airflow import surface
from tests.airflow.surface import GOLDEN, LIBRARY, PACKAGE, differences


def test_the_public_surface_is_the_recorded_one():
    rows = list(differences(json.loads(GOLDEN.read_text()), json.loads(json.dumps(surface.surface()))))

    table = "\n".join(f"| {path} | {old} | {new} |" for path, old, new in rows)
    assert not rows, (
        f"The public surface has changed:\n\n| where | was | is |\n|---|---|---|\n{table}\n\n"
        "If that is on purpose: python -m tests.airflow.surface, and a changelog fragment."
    )


def test_the_surface_holds_all_that_the_guides_import():
    """Guides import from no module that a change could move unseen."""
    root = GOLDEN.parents[2]
    pages = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    text = "\n".join(page.read_text() for page in pages)
    found = re.findall(rf"^from {PACKAGE}\.([\w.]+) import", text, re.MULTILINE)

    recorded = json.loads(GOLDEN.read_text())
    modules = {
        *LIBRARY,
        "lake.errors",
        *(name.split(".", 1)[1].rpartition(".")[0] for name in recorded["tasks"]),
    }
    assert set(found) - modules == set()


def test_a_change_is_shown_as_what_was_and_what_is():
    old = {"a": {"takes": ["x", "y: int = 1"]}, "b": 1}
    new = {"a": {"takes": ["x", "y: int = 2"]}, "c": None}

    assert list(differences(old, new)) == [("/a/takes", "y: int = 1", "y: int = 2"), ("/b", "1", "null")]
