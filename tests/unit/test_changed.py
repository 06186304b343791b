"""Which tests are near to a change, by imports."""

import textwrap
from pathlib import Path

from scripts.changed import SOURCES, Module, distances

PACKAGE = SOURCES[0]
FILES = {
    f"{PACKAGE}/rule.py": "def rule(): pass\ndef other(): pass",
    f"{PACKAGE}/lake.py": """
        from airflow_provider_ducklake import rule
        class Lake:
            def ruled(self): return rule.rule()
            def unruled(self): pass
        """,
    f"{PACKAGE}/verb.py": "from .rule import rule\ndef verb(): return rule()",
    "tests/test_rule.py": "from airflow_provider_ducklake.rule import rule\ndef test_it(): assert rule()",
    "tests/test_verb.py": "from airflow_provider_ducklake.verb import verb\ndef test_it(): assert verb()",
    "tests/test_ruled.py": "def test_it(lake): lake.ruled()",
    "tests/test_unruled.py": "def test_it(lake): lake.unruled()",
}


def test_tests_are_as_far_away_as_what_they_mention(tmp_path):
    modules = {}
    for path, code in FILES.items():
        file = tmp_path / path.replace("/", "_")
        file.write_text(textwrap.dedent(code))
        modules[path] = Module.of(file, Path(path).parent.parts)

    found = distances({f"{PACKAGE}/rule.py"}, modules)

    far = {path: distance for path, (distance, _) in found.items() if path.startswith("tests/")}
    assert far == {"tests/test_rule.py": 1, "tests/test_verb.py": 2, "tests/test_ruled.py": 2}
