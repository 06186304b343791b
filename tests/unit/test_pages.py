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


# --- README claims what a test or a figure shows ---

README = (ROOT / "README.md").read_text()
# A sentence's beginning in README, or the head of a row of "What works", and the tests or figures.
CLAIMS = {
    "all of its rows\nappear at once": [
        "concurrency/test_fault_injection.py::test_a_commit_that_fails_anywhere"
    ],
    "a retry never doubles them": ["airflow/test_retries.py::test_a_task_through_retries_and_clears"],
    "a cleared task replaces them": ["airflow/test_retries.py::test_real_spark_replaces_what_a_cleared_task"],
    "your analysts read, and write, the same tables in DuckDB": [
        "interop/test_interleaving.py::",
        "concurrency/test_concurrent_verbs.py::",
    ],
    "also when a worker dies during the commit": [
        "concurrency/test_fault_injection.py::test_a_commit_that_fails_anywhere",
        "airflow/test_killed_workers.py::test_a_merge_has_its_effect_once",
    ],
    "before anyone sees it": ["airflow/test_staged.py::test_a_staged_write_is_invisible_until_its_commit"],
    "keep row ids": ["spark/test_row_changes.py::test_row_ids_outlive_a_merge_by_duckdb"],
    "makes an event, with its rows and snapshot": [
        "airflow/test_asset_events.py::test_each_changed_table_has"
    ],
    "a watcher does the same": ["airflow/test_asset_events.py::test_commits_start_runs_and_none_is_lost"],
    "No password of the catalog on the cluster": [
        "airflow/test_yarn.py::test_an_insert_runs_in_containers_and_no_secret",
        "airflow/test_kubernetes.py::test_an_insert_runs_in_a_pod_and_no_secret",
    ],
    "row by row with those of DuckDB 1.5.5": ["differential/test_state_machine.py::test_drawn_histories"],
    "takes 0.6 s on a warm Spark Connect server": ["../benchmarks/fixed_cost.py", "../docs/spark_connect.md"],
    "takes half the time for 200 columns": ["../benchmarks/shapes.py", "../docs/adr/0019-arrow-writes.md"],
    "does not grow with the lake": [
        "catalogs/test_scale.py::test_the_number_of_statements_does_not_grow_with_a_lake",
        "../benchmarks/scale.py",
    ],
    "$ airflow dags test shop 2026-11-01": ["../scripts/install_test.py"],
    "the task fails and says what": ["interop/test_odd.py::test_an_odd_value_in_a_catalog"],
    "| Airflow |": [
        "../docs/compatibility.md",
        "airflow/test_any_airflow.py::test_jobs_and_sensors_of_one_dag",
    ],
    "| Python |": ["../docs/compatibility.md"],
    "| Spark |": ["../docs/compatibility.md"],
    "| Where Spark runs |": [
        "airflow/test_cluster.py::test_every_verb_works_where_machines_share_a_store_alone",
        "airflow/test_spark_connect.py::test_each_verb_does_what_it_does_by_spark_submit",
        "airflow/test_yarn.py::test_an_insert_runs_in_containers",
        "airflow/test_kubernetes.py::test_an_insert_runs_in_a_pod",
    ],
    "| Catalog database |": ["airflow/test_any_airflow.py::test_jobs_and_sensors_of_one_dag"],
    "| DuckDB |": [
        "interop/test_any_duckdb.py::test_what_duckdb_writes_we_read_migrate_and_add_to",
        "interop/test_any_duckdb.py::test_what_we_write_duckdb_reads_or_refuses",
        "reference/test_as_1_0.py",
    ],
    "| DuckLake version |": [
        "spark/test_lakes_of_1_1.py::test_every_verb_writes_there",
        "interop/test_migrate_1_1.py::test_a_lake_older_than_1_0_is_migrated_at_once",
    ],
    "| Data files |": ["airflow/test_s3.py::test_the_documented_lake_on_s3_works_for_each_verb"],
    "| Insert |": [
        "spark/test_overwrite.py::test_partitions_of_the_new_rows_are_replaced",
        "airflow/test_insert_operator.py::test_a_table_is_created_together_with_its_rows",
        "spark/test_evolution.py::test_the_catalog_is_that_of_alter_and_insert",
        "spark/test_row_order.py::test_clustered_files_are_narrow_in_every_column",
    ],
    "| Streams |": ["airflow/test_stream_operator.py::test_each_batch_becomes_a_snapshot"],
    "| Several writes, one snapshot |": [
        "airflow/test_staged.py::test_the_example_commits_what_two_real_jobs"
    ],
    "| Sources of rows |": [
        "airflow/test_insert.py::test_sources_of_each_kind_land_as_one_snapshot_each",
        "spark/test_sources.py::test_columnar_files_keep_their_types",
    ],
    "| Adding files |": [
        "interop/test_add_files.py::test_flat_files_leave_the_references_catalog",
        "interop/test_add_iceberg_table.py::test_deleted_positions_become_delete_files",
        "interop/test_add_delta_table.py::test_rows_that_deltalake_deleted_and_merged_stay_away",
    ],
    "| Spark SQL over lake tables |": [
        "airflow/test_sql_operator.py::test_all_statements_become_one_snapshot",
        "airflow/test_sql_operator.py::test_only_changes_are_seen",
    ],
    "| Delete, update, merge |": ["spark/test_row_changes.py::test_clauses_in_their_order"],
    "| DDL |": ["airflow/test_ddl_operator.py::test_all_statements_land_in_one_snapshot"],
    "| Concurrent writers |": [
        "concurrency/test_conflicts.py::test_our_verdicts_are_the_references_or_better"
    ],
    "| Waiting for changes |": [
        "airflow/test_snapshot_sensor.py::test_the_three_modes_hand_the_same_on",
        "airflow/test_asset_events.py::test_partitions_have_events_where_they_are_an_outlet",
    ],
    "| Long jobs |": [
        "airflow/test_long_jobs.py::test_a_later_try_takes_the_results",
        "airflow/test_yarn.py::test_a_later_try_takes_the_results",
        "airflow/test_kubernetes.py::test_a_later_try_takes_the_results",
    ],
    "| Lineage |": [
        "airflow/test_lineage.py::test_each_task_has_an_event_when_it_starts_and_when_it_ends",
        "airflow/test_lineage.py::test_columns_of_an_insert_come_from_its_source",
    ],
    "| Maintenance |": ["airflow/test_maintenance.py::test_each_step_does_what_is_to_do"],
    "| Named snapshots |": ["interop/test_tags.py::test_a_tag_survives_expiry_and_clean_up"],
    "| Frozen lakes |": [
        "interop/test_export_catalog.py::test_a_frozen_lake_is_read_over_http",
        "interop/test_export_catalog.py::test_a_frozen_lake_in_a_bucket_is_read_from_there",
    ],
    "| Reading without Spark |": [
        "interop/test_reads_at_every_snapshot.py::test_rows_equal_the_references_at_every_snapshot",
        "interop/test_change_feed.py::test_changes_equal_the_references",
    ],
    "| Iceberg |": ["iceberg/test_rows.py::test_iceberg_gives_the_rows"],
    "| Encrypted lakes |": [
        "spark/test_encrypted_lakes.py::test_every_verb_keeps_the_lake_encrypted_and_right"
    ],
}


def test_each_claim_is_in_the_readme_and_what_shows_it_exists():
    assert [claim for claim in CLAIMS if claim not in README] == []
    for shown_by in (one for some in CLAIMS.values() for one in some):
        file, _, name = shown_by.partition("::")
        assert not name or f"\ndef {name}" in (ROOT / "tests" / file).read_text(), shown_by
        assert (ROOT / "tests" / file).exists(), shown_by


def test_each_row_of_what_works_is_a_claim():
    works = README.partition("## What works")[2].partition("At which DuckLake version")[0]
    heads = re.findall(r"^(\| [A-Z][^|]+ \|)", works, re.MULTILINE)

    assert len(heads) > 20
    assert set(heads) <= CLAIMS.keys()
