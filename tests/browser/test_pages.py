"""What a person sees of the provider on Airflow's pages, in a window of 1400 by 900 pixels."""

import html
import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import SCREEN, Site, picture
from tests.reference.duckdb_lake import open_lake

MARGIN = 28  # pixels at the right edge of a log
ORDERS = "ducklake://ducklake_default/sales/orders"
# What a user did wrong, and what the sentence that says so has in it.
MISTAKES = {
    "no_such_table": "Check the name",
    "no_such_file": "/no/such/orders.parquet",
    "wrong_columns": "prize",
    "no_such_column": "prize",
    "not_ddl": "MONEY",
}
SESSION = """\
>>> import duckdb
>>> duckdb.sql("ATTACH 'ducklake:sqlite:ducklake-demo/lake.sqlite' AS lake (READ_ONLY)")
>>> duckdb.sql("FROM lake.sales.orders LIMIT 5")
%s
"""
PROMPT = """
<body style="margin: 0"><pre id="prompt" style="display: inline-block; margin: 0; padding: 20px 28px;
font: 15px/1.35 'DejaVu Sans Mono', monospace; background: light-dark(#f6f8fa, #0d1117);
color: light-dark(#1f2328, #e6edf3); color-scheme: light dark">%s</pre></body>
"""


def opened(page: Page, address: str) -> None:
    page.goto(address)
    page.wait_for_load_state("networkidle")


def in_sight(what: Locator) -> bool:
    """Whether all of something is in the window, to the end of each line."""
    expect(what).to_be_visible(timeout=30_000)
    box = what.bounding_box()
    assert box is not None
    return (
        box["x"] + box["width"] <= SCREEN["width"] - MARGIN and box["y"] + box["height"] <= SCREEN["height"]
    )


def test_a_tasks_log_says_what_was_committed(site: Site, page: Page):
    opened(page, site.task("shop", "load_orders"))

    assert in_sight(page.get_by_text("DuckLake insert").first)
    expect(
        page.get_by_text(re.compile("Lake ducklake_default: DuckLake 1.0 in SQLite")).first
    ).to_be_visible()
    assert in_sight(page.get_by_text(re.compile("Committed snapshot 1 to sales.orders: 1,000 rows")).first)
    assert in_sight(
        page.get_by_text(re.compile(r"In DuckDB: FROM lake.sales.orders AT \(VERSION => 1\)")).first
    )
    picture(page, "log", 560)


@pytest.mark.parametrize(
    ("task_id", "said"),
    [
        ("evolve", r"Its columns: added column channel varchar; points int32 → int64"),
        ("empty", r"replaced 60 rows by 0"),
        ("ducklake_maintenance.plan_merge", r"nothing to do – no table has 5 small files"),
        ("ducklake_maintenance.expire", r"Expired \d+ snapshots"),
        ("ducklake_maintenance.clean_up", r"nothing to do – no file that was scheduled"),
    ],
)
def test_a_task_says_what_it_did(site: Site, page: Page, task_id: str, said: str):
    opened(page, site.task("night", task_id))

    picture(page, f"night-{task_id.rpartition('.')[2].replace('_', '-')}", 660)
    assert in_sight(page.get_by_text(re.compile(said)).first)


@pytest.mark.parametrize("task_id", MISTAKES)
def test_what_went_wrong_is_in_sight(site: Site, page: Page, task_id: str):
    opened(page, site.task("mistakes", task_id))

    sentence = page.get_by_text(re.compile(rf"Error: .*{re.escape(MISTAKES[task_id])}", re.DOTALL)).first
    assert in_sight(sentence)
    assert page.get_by_text("Traceback").count() == 0
    picture(page, f"failed-{task_id.replace('_', '-')}", 660)


def test_tables_are_assets_with_their_tasks(site: Site, page: Page):
    opened(page, site.address("/assets"))
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name=ORDERS, exact=True))
    expect(row).to_contain_text("1 Dag")
    expect(row.get_by_text("1 Task")).to_have_count(2)  # the one that writes it, and the one that reads it

    opened(page, site.asset(ORDERS))
    for name in ("shop", "daily_sales", "sales/days"):
        expect(page.locator(".react-flow__node").filter(has_text=name).first).to_be_visible(timeout=30_000)
    assert in_sight(page.get_by_text("Triggered Dag Run").first)
    picture(page, "assets")


def test_no_asset_is_looked_up_in_vain(site: Site):
    logs = [*site.airflow.home.glob("*.log"), *site.airflow.home.glob("logs/**/*.log")]
    assert any("Committed snapshot" in file.read_text(errors="replace") for file in logs)
    assert [file for file in logs if "Asset not found" in file.read_text(errors="replace")] == []


def test_a_dag_in_the_grid(site: Site, page: Page):
    opened(page, site.address("/dags/shop"))

    assert in_sight(page.get_by_text("load_orders").first)
    assert in_sight(page.get_by_text(ORDERS).first)
    picture(page, "grid", 720)


def test_the_form_of_a_connection_begins_with_what_a_lake_needs(site: Site, page: Page):
    opened(page, site.address("/connections"))
    row = page.get_by_role("row").filter(has_text="ducklake_default")
    row.get_by_role("button", name="Edit Connection").click()
    page.get_by_role("button", name="Extra Fields", exact=True).click()

    for label in ("Catalog type", "Data path", "Create the lake"):
        assert in_sight(page.get_by_text(label, exact=False).first)
    picture(page, "form")


def test_the_rows_in_duckdb(site: Site, page: Page):
    with open_lake(f"ducklake:sqlite:{site.lake}/lake.sqlite", read_only=True) as lake:
        shown = str(lake.raw.sql("FROM sales.orders LIMIT 5"))
    assert "2026-11-01" in shown

    page.set_content(PROMPT % html.escape((SESSION % shown).rstrip()))
    box = page.locator("#prompt").bounding_box()
    assert box is not None
    picture(page, "duckdb", int(box["height"]), int(box["width"]))
