"""The public files that packages ship, and those beside the project, through every door."""

from pathlib import Path

import pytest

from tests.corpora import packages
from tests.corpora.outcomes import failures, lines
from tests.corpora.run import files_of, reports

BESIDE = Path(__file__).parents[3] / "shared" / "data" / "parquet-testing"
FOLDERS = ("data", "bad_data", "shredded_variant")
pytestmark = pytest.mark.timeout(7200)


@pytest.mark.parametrize("name", [*packages.packages(), *FOLDERS])
def test_no_public_file_ends_in_a_raw_error_an_abort_or_a_table_that_is_shut(name, tmp_path):
    if name in FOLDERS:
        if not BESIDE.is_dir():
            pytest.skip(f"the public files are not at {BESIDE}")
        files = [(file.name, file) for file in files_of(BESIDE / name)]
    else:
        try:
            files = packages.files_of(name)
        except packages.NotFetchedError as error:
            pytest.skip(str(error))

    found = list(reports(files, tmp_path, seconds=240.0))

    print("\n".join(lines(found)))
    assert failures(found) == []
