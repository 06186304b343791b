"""What a newcomer is shown: every guide and every example is listed where one looks for it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from airflow_provider_ducklake.lake import Lake

ROOT = Path(__file__).parents[2]
GUIDES = {page.name for page in (ROOT / "docs").glob("*.md")} - {"index.md", "sources.md"}


def linked(text: str) -> set[str]:
    return {link.partition("#")[0] for link in re.findall(r"\]\(([\w./#-]+)\)", text)}


def test_every_guide_is_in_the_menu_and_on_the_first_page():
    menu = set(re.findall(r": (\w+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))

    assert menu - {"index.md"} == GUIDES
    assert linked((ROOT / "docs/index.md").read_text()) >= GUIDES


def test_every_operator_sensor_and_trigger_is_in_the_reference():
    package, page = ROOT / "airflow_provider_ducklake", (ROOT / "docs/api.md").read_text()
    classes = {
        f"{file.relative_to(ROOT).with_suffix('').as_posix().replace('/', '.')}.{name}"
        for folder in ("operators", "sensors")
        for file in (package / folder).glob("*.py")
        for name in re.findall(r"^class (DuckLake\w+)\(", file.read_text(), re.MULTILINE)
    }
    inner = {"DuckLakeSparkCompactionOperator"}  # and the steps of the maintenance group

    named = {one for one in classes if one.rpartition(".")[2] not in inner and "Maintenance" not in one}
    assert named <= set(re.findall(r"^::: (\S+)$", page, re.MULTILINE))


def test_every_method_of_a_lake_is_in_the_reference_and_in_a_guide():
    page = (ROOT / "docs/api.md").read_text()
    guides = "".join((ROOT / "docs" / name).read_text() for name in GUIDES)
    names = {name for name in dir(Lake) if not name.startswith("_")}
    forwarded = {name for names in re.findall(r"members: \[([^]]*)\]", page) for name in names.split(", ")}

    assert len(names) <= 45
    assert forwarded == {
        name for name in names if getattr(getattr(Lake, name), "__module__", "") not in ("", Lake.__module__)
    }
    assert {
        name for name in names if not re.search(rf"\b(?:lake|Lake|lake\(\)|frozen)\.{name}\b", guides)
    } == set()


def test_the_readme_says_how_to_install():
    text = (ROOT / "README.md").read_text()

    assert "\n```console\n$ pip install '.[pyspark,postgres]'\n```\n" in text.partition("## Install")[2]


def test_the_readme_and_the_quick_start_have_the_same_dag():
    first, second = (
        re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)
        for page in ("README.md", "docs/quickstart.md")
    )

    assert first == second[:1]


def test_every_example_is_documented():
    examples = {file.stem for file in (ROOT / "example_dags").glob("*.py")}

    assert (
        set(re.findall(r"^\| `(example_\w+)` \|", (ROOT / "docs/quickstart.md").read_text(), re.MULTILINE))
        == examples
    )


def test_each_cell_of_who_can_do_what_names_tests_that_exist():
    page = (ROOT / "docs/security.md").read_text()
    rows = [line.strip("|").split("|") for line in page.splitlines() if re.match(r"\| \*\*\d", line)]
    cells = {
        f"{number}{letter}"
        for number, row in enumerate(rows, 1)
        for letter, cell in zip("abcdef", row[1:], strict=True)
        if len(cell.strip()) > 1  # a dash: nobody asks
    }
    named = re.findall(r"^- (\*\*.*?) (`tests.*`)$", page, re.MULTILINE)
    tests = {test for _, listed in named for test in re.findall(r"`(\S+)`", listed)}

    assert len(rows) == 6
    assert sorted(cells) == sorted(cell for heads, _ in named for cell in re.findall(r"\w+", heads))
    for file, name in (test.split("::") for test in tests):
        assert f"\ndef {name}(" in (ROOT / file).read_text(), f"{file} has no {name}"


# Words by which things act like people, and what a person or a component does instead.
_WORDS = {
    r"knows": "has, reads, supports",
    r"believe[sd]?": "counts",
    r"(?:is|are|was) told": "gets",
    r"tells": "reports, says",
    r"worked on": "used",
    r"(?:is|are) asked about": "is polled for",
}


def test_no_page_has_things_act_like_people():
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    found = [
        f"{page.name}: {line.strip()[:80]} (instead of {word!r}: {instead})"
        for page in pages
        if page.name != "sources.md"
        for line in page.read_text().splitlines()
        for word, instead in _WORDS.items()
        if re.search(rf"\b{word}\b", line)
    ]

    assert found == []


def messages(source: str) -> Iterator[str]:
    """Yield the texts of a module that are no docstrings."""
    tree = ast.parse(source)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    first = [node.body[0] for node in ast.walk(tree) if isinstance(node, documented) and node.body]
    docstrings = {id(one.value) for one in first if isinstance(one, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


def test_no_message_has_things_act_like_people():
    found = [
        f"{file.relative_to(ROOT)}: {text[:80]!r} (instead of {word!r}: {instead})"
        for file in (ROOT / "airflow_provider_ducklake").rglob("*.py")
        for text in messages(file.read_text())
        for word, instead in {**_WORDS, "(?:do|does) not know": "has no", "given up": "released"}.items()
        if re.search(rf"\b{word}\b", text)
    ]

    assert found == []


def test_pictures_are_there_light_and_dark():
    """And each of them is shown somewhere."""
    shown = {
        (page.parent / path).resolve()
        for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))
        for path in re.findall(r'src(?:set)?="([^"]+)"', page.read_text())
    }

    assert shown == set((ROOT / "docs/images").resolve().iterdir())
    assert {one.name.replace("-light", "-dark") for one in shown} <= {one.name for one in shown}
