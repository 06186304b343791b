"""The histories that are written into these catalogs: a choice of those that the usual catalogs get."""

import pytest

from tests.differential.ddl_scenarios import DDL_SCENARIOS
from tests.differential.scenarios import SCENARIOS

_EVERY = [*SCENARIOS, *DDL_SCENARIOS]
_CHOICE = [one for one in SCENARIOS if not one.name.startswith("partition by") or "every" in one.name]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "scenario" in metafunc.fixturenames:
        scenarios = _EVERY if metafunc.config.option.size == "full" else _CHOICE
        metafunc.parametrize("scenario", scenarios, ids=lambda scenario: scenario.name)
