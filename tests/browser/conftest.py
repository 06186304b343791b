"""An Airflow with a lake, whose DAGs have run, and a browser that looks at its pages."""

import json
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.airflow.services import Airflow, airflow, unpaused

QUICK_START = Path(__file__).parents[2] / "docs" / "quickstart.md"
SAVED = r"^Save this as `~/airflow/dags/(\S+)`:\n\n```python\n(.*?)^```"
CHROMIUM = shutil.which("chromium")
MORE = {"mistakes": "failed", "night": "success"}  # DAGs of this folder, and how their runs end
PATIENCE = 900.0
SCREEN = {"width": 1400, "height": 900}
PICTURES = Path("build/pictures").absolute()  # `make pictures` copies some of them to docs/images
# No sandbox for root; the rest keeps the browser from asking its maker's servers.
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class Site:
    """The pages of an Airflow whose DAGs have run."""

    def __init__(self, one: Airflow, lake: Path) -> None:
        self.airflow = one
        self.lake = lake

    def address(self, path: str) -> str:
        return f"http://127.0.0.1:{self.airflow.port}{path}"

    def task(self, dag_id: str, task_id: str) -> str:
        """Return the address of a task in its DAG's first run."""
        ((run_id, *_), *_) = self.airflow.query(
            "SELECT run_id FROM dag_run WHERE dag_id = ? ORDER BY id", dag_id
        )
        return self.address(f"/dags/{dag_id}/runs/{quote(run_id)}/tasks/{task_id}")

    def asset(self, uri: str) -> str:
        return self.address(f"/assets/{self.airflow.query('SELECT id FROM asset WHERE uri = ?', uri)[0][0]}")

    def after(self, dag_id: str, runs: int) -> list[str]:
        """Return how so many runs of a DAG ended, as soon as they have."""
        query = "SELECT state FROM dag_run WHERE dag_id = ? AND state IN ('success', 'failed')"

        def ended() -> list[str]:
            states = [state for (state,) in self.airflow.query(query, dag_id)]
            return states if len(states) >= runs else []

        found: list[str] = self.airflow.wait(ended, PATIENCE, dag_id)
        return found


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Airflow after the DAGs of the quick start have run for two days, mistakes, and a night."""
    folder = tmp_path_factory.mktemp("site")  # not of the lake, whose short path pictures show
    with tempfile.TemporaryDirectory(prefix="demo-") as lake, airflow(folder) as one:
        connections = {
            "spark_default": {"conn_type": "spark", "host": "local[2]"},
            "ducklake_default": {
                "conn_type": "ducklake",
                "schema": f"{lake}/lake.sqlite",
                "extra": {"catalog_type": "sqlite", "data_path": f"{lake}/files/", "create_lake": True},
            },
        }
        for name, connection in connections.items():
            one.run("connections", "add", name, "--conn-json", json.dumps(connection))
        for dag_id in MORE:
            shutil.copy(Path(__file__).with_name(f"{dag_id}.py"), one.dags)
        for name, code in re.findall(SAVED, QUICK_START.read_text(), re.DOTALL | re.MULTILINE):
            (one.dags / name).write_text(code)
        one.start()
        found = Site(one, Path(lake))
        unpaused(one, ("shop", "daily_sales", *MORE), PATIENCE)
        for number, day in enumerate(("2026-11-01", "2026-11-02"), start=1):
            one.run("dags", "trigger", "shop", "--logical-date", day)
            assert found.after("shop", number) == ["success"] * number, one.logs()
            assert found.after("daily_sales", number) == ["success"] * number, one.logs()
        for dag_id, state in MORE.items():
            one.run("dags", "trigger", dag_id)
            assert found.after(dag_id, 1) == [state], one.logs()
        yield found


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("No chromium on PATH: apt-get install chromium")
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield found
        found.close()


@pytest.fixture(params=["light", "dark"])
def page(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    """A window of 1400 by 900 pixels, as people have it who like light and dark pages."""
    context = browser.new_context(viewport=SCREEN, color_scheme=request.param)
    yield context.new_page()
    context.close()


def picture(page: Page, name: str, height: float = SCREEN["height"], width: float = SCREEN["width"]) -> Path:
    """Keep what the window shows, or its upper left part, and return where."""
    page.wait_for_timeout(1000)  # until nothing moves any more
    scheme = "dark" if page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches") else "light"
    PICTURES.mkdir(parents=True, exist_ok=True)
    path = PICTURES / f"{name}-{scheme}.png"
    page.screenshot(path=path, clip={"x": 0, "y": 0, "width": width, "height": height})
    return path
