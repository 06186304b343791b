"""The support matrix as data: which versions are to go together, which cells show it, and what is not run.

Of any two axes, each pair of values is in one of the cells, as few as that takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

AXES: dict[str, tuple[str, ...]] = {
    "spark": ("4.0.5", "4.1.4", "4.2.1", "4.3.0"),
    "airflow": ("3.1.1", "3.2.2", "3.3.2", "3.4.0b2"),
    "catalog": ("sqlite", "postgres", "mariadb", "duckdb", "mysql"),
    "python": ("3.11", "3.12", "3.13"),
    "duckdb": ("1.4.4", "1.5.5"),
}
NAMES = {
    "spark": "PySpark",
    "airflow": "Airflow",
    "catalog": "Catalog",
    "python": "Python",
    "duckdb": "DuckDB",
    "sqlite": "SQLite",
    "postgres": "PostgreSQL",
    "mariadb": "MariaDB",
    "mysql": "MySQL",
}
LOWEST = "lowest"


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination of versions; ``resolution`` is how uv chooses those of all other packages."""

    spark: str
    airflow: str
    catalog: str
    python: str
    duckdb: str
    resolution: str = "highest"

    @property
    def name(self) -> str:
        """What ``--only`` calls it."""
        if self.resolution != "highest":
            return LOWEST
        return f"{self.spark}-{self.airflow}-{self.catalog}-{self.python}-{self.duckdb}"


CELLS = (
    Cell("4.0.5", "3.1.1", "sqlite", "3.11", "1.4.4"),
    Cell("4.0.5", "3.2.2", "postgres", "3.13", "1.5.5"),
    Cell("4.0.5", "3.3.2", "mariadb", "3.12", "1.4.4"),
    Cell("4.0.5", "3.4.0b2", "duckdb", "3.12", "1.5.5"),
    Cell("4.1.4", "3.1.1", "postgres", "3.12", "1.5.5"),
    Cell("4.1.4", "3.2.2", "sqlite", "3.12", "1.4.4"),
    Cell("4.1.4", "3.3.2", "duckdb", "3.13", "1.4.4"),
    Cell("4.1.4", "3.4.0b2", "mariadb", "3.11", "1.4.4"),
    Cell("4.2.1", "3.1.1", "mariadb", "3.13", "1.5.5"),
    Cell("4.2.1", "3.2.2", "duckdb", "3.11", "1.5.5"),
    Cell("4.2.1", "3.3.2", "sqlite", "3.12", "1.5.5"),
    Cell("4.2.1", "3.4.0b2", "postgres", "3.12", "1.4.4"),
    Cell("4.3.0", "3.1.1", "duckdb", "3.12", "1.4.4"),
    Cell("4.3.0", "3.2.2", "mariadb", "3.12", "1.5.5"),
    Cell("4.3.0", "3.3.2", "postgres", "3.11", "1.4.4"),
    Cell("4.3.0", "3.4.0b2", "sqlite", "3.13", "1.5.5"),
    Cell("4.2.1", "3.3.2", "mysql", "3.13", "1.5.5"),
    Cell("4.2.0", "3.1.1", "all", "3.11", "1.4.1", resolution="lowest-direct"),
)

# The lowest that the Spark provider takes: uv would choose the one that the newest of others ask for.
LOWEST_PINS = ("apache-airflow-providers-common-compat==1.12.0",)
# What pip chooses beside an Airflow of another day: without its constraints file, releases break each other.
AIRFLOW_PINS = {
    # 3.1 imports a name that structlog 25.5 no longer has, and makes the form of a connection by wtforms
    "3.1.1": ("structlog>=25.4,<25.5", "wtforms>=3"),
    # FastAPI refuses its model of a task's end since 0.140, and its server starts without a lifespan
    "3.2.2": ("fastapi<0.140", "svcs<26"),
    # a pre-release comes only where it is named
    "3.4.0b2": ("apache-airflow-core==3.4.0b2", "apache-airflow-task-sdk==1.4.0b2"),
}

_ONE_CELL = "one cell runs on MySQL; the provider has one dialect and one driver for it and MariaDB"
NOT_RUN = {
    ("airflow", "3.1.0"): "excluded by the provider's requirements",
    ("airflow", "3.1.2 to 3.1.8"): "3.1.1, the oldest, stands for 3.1",
    ("spark", "3.5"): "the provider needs Spark 4",
    ("duckdb", "2.0"): "the package index has no ducklake extension for it yet",
    ("python", "3.14"): "excluded by the provider's requirements",
}


def pairs() -> Iterator[tuple[tuple[str, str], tuple[str, str]]]:
    """Yield each pair of values of two axes."""
    for one, other in combinations(AXES, 2):
        for value in AXES[one]:
            for second in AXES[other]:
                yield (one, value), (other, second)


def cells_with(*values: tuple[str, str]) -> list[Cell]:
    """Return the cells that have all those values of axes."""
    chosen = [cell for cell in CELLS if cell.resolution == "highest"]
    return [cell for cell in chosen if all(getattr(cell, axis) == value for axis, value in values)]


def why_not(*values: tuple[str, str]) -> str | None:
    """Return why no cell has those values of axes; None where one has."""
    if cells_with(*values):
        return None
    return _ONE_CELL if ("catalog", "mysql") in values else "missing"
