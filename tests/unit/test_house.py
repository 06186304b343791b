"""The figures of the house only fall; a commit that adds a feature may raise one and say why."""

import json

import pytest

from scripts import house

HELD = json.loads(house.GOLDEN.read_text())


@pytest.mark.parametrize(
    "measured", [house.source_figures, pytest.param(house.visited_figures, marks=pytest.mark.daily)]
)
def test_no_figure_of_the_house_rises(measured):
    now = measured()

    assert now.keys() <= HELD.keys()
    assert {name: value for name, value in now.items() if value > HELD[name]} == {}


@pytest.mark.daily
def test_who_appends_and_reads_loads_a_part_of_the_package():
    now = house.loaded_figures()

    assert {name: value for name, value in now.items() if value > HELD[name]} == {}
