"""Every kind of finding has a remedy and a line in the guide."""

import re
from pathlib import Path

from airflow_provider_ducklake.lake.catalog.verify.repair import REPAIRS
from airflow_provider_ducklake.lake.catalog.verify.verification import CHECKS
from airflow_provider_ducklake.lake.planning.upkeep.findings import NOTES, REPAIRABLE, Finding, FindingCode

GUIDE = Path(__file__).parents[3] / "docs" / "verify.md"


def test_each_kind_has_a_remedy():
    assert all(code.remedy.endswith(".") for code in FindingCode)


def test_the_guide_lists_each_kind_and_whether_it_is_mended():
    rows = re.findall(
        r"^\| `([a-z-]+)` \| .+ \| (yes|if it holds no rows)? ?\|$", GUIDE.read_text(), re.MULTILINE
    )

    assert [code for code, _ in rows] == [code.value for code in FindingCode]
    assert {code for code, mended in rows if mended == "yes"} == {code.value for code in REPAIRABLE}
    assert {code for code, mended in rows if mended} == {code.value for code in REPAIRS}


def test_each_kind_that_the_catalog_shows_has_a_check():
    codes = list(FindingCode)
    of_files = {FindingCode.ROW_IDS_OVERLAP, *codes[codes.index(FindingCode.FILE_MISSING) :]}
    before_checks = {FindingCode.VALUE_MISSING, FindingCode.SCHEMA_CIRCLE, FindingCode.PATH_MISLEADING}

    of_both = {FindingCode.TYPE_NARROWER}  # of files, and of inlined rows

    found = {code for check in CHECKS for code in check.codes}
    assert found == set(codes) - (of_files - of_both) - before_checks


def test_a_note_is_no_fault():
    assert Finding(FindingCode.OUTSIDE_DATA_PATH, "A file lies elsewhere.").is_note
    assert not any(Finding(code, "").is_note for code in set(FindingCode) - NOTES)
