"""The table of `docs/features.md` and of the README says what is measured."""

import pytest

from tests.interop import features


def test_the_pages_have_one_table_of_all_features():
    page, readme = (features.lines_of(one) for one in features.PAGES)

    assert page == readme
    assert [line.split(" | ")[0].removeprefix("| ") for line in page[2:]] == [
        feature.name for feature in features.FEATURES
    ]


@pytest.mark.parametrize("feature", features.FEATURES, ids=lambda one: one.name)
def test_a_line_is_what_is_measured(tmp_path, feature):
    assert features.measured(feature, tmp_path).line in features.lines_of(features.PAGES[0])
