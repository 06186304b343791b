"""Records of the log: no value breaks one into several lines, and no module has a logger of another kind."""

import ast
import logging
from pathlib import Path

import airflow_provider_ducklake
from airflow_provider_ducklake.lake.errors import InvalidValueError
from airflow_provider_ducklake.lake.format.log_lines import logger

PACKAGE = Path(airflow_provider_ducklake.__file__).parent
OTHERS = {  # of other packages, or that only pass records on
    "hooks/task.py",
    "lake/spark/jobs/run.py",
    "lake/spark/sessions/remote.py",
    "lake/format/log_lines.py",
    "lake/sql/trees.py",
}
HOSTILE = "a/x\n[2026-11-26] ERROR - call us\x1b[31m"


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def said_by(call) -> list[str]:
    log, kept = logger("tests.log_lines"), Kept()
    log.addHandler(kept)
    try:
        call(log)
    finally:
        log.removeHandler(kept)
    return kept.texts


def test_paths_and_errors_of_others_stay_on_one_line():
    texts = said_by(lambda log: log.error("%s: %s, %d, %.80r", HOSTILE, OSError(HOSTILE), 3, HOSTILE))

    assert len(texts[0].splitlines()) == 1
    assert "\x1b" not in texts[0]
    assert texts[0].startswith("a/x\\n[2026-11-26] ERROR - call us\\x1b[31m: a/x\\n")


def test_an_error_of_ours_keeps_its_lines_which_are_indented():
    texts = said_by(lambda log: log.error("%s", InvalidValueError("main.t", [HOSTILE])))

    assert [line[:4] for line in texts[0].splitlines()] == ["Valu", "  - "]


def test_values_that_no_line_can_hold_are_cut():
    texts = said_by(lambda log: log.error("%s", "x" * 100_000))

    assert len(texts[0]) < 3_000


def test_every_module_has_such_a_logger():
    bare = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr == "getLogger"
    }

    assert bare == OTHERS


def test_no_message_of_a_record_is_put_together_before_it_is_logged():
    levels = {"debug", "info", "warning", "error", "exception", "critical"}
    made = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in levels
        and ast.unparse(node.func.value).endswith("log")
        and not isinstance(node.args[0], ast.Constant)
    ]

    assert made == []
