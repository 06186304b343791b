"""Fail if a lake breaks an invariant of the format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException

from ..hooks.ducklake import DuckLakeHook
from ..hooks.task import no_retry_on_user_errors
from ..lake.errors import InvalidInputError, short_line
from ..lake.planning.upkeep.findings import Finding, FindingCode
from .base import DuckLakeOperator
from .health import hand_on, table_names

if TYPE_CHECKING:
    from airflow.sdk import Context

_SHOWN = 20  # findings in an error's text
_HANDED_ON = 200  # findings in XCom


class DuckLakeVerifyOperator(DuckLakeOperator):
    """Verify that a lake's catalog is consistent and that its files match it. Nothing is changed.

    If something is found, the task fails without retries and names the first findings with their remedies;
    the first two hundred are in the XCom ``findings``. ``lake.repair`` repairs what can be repaired without
    loss.

    :param tables: names of the tables to verify; default: all, and everything that concerns the whole lake.
        (templated)
    :param sample: the fraction of files that are opened, from 0 (the catalog alone) to 1 (all), drawn again
        in each run. (templated)
    :param ignore: codes of known findings that do not fail the task, such as ``["table-stats-narrow"]``; they
        are counted. (templated)
    :param ducklake_conn_id: the connection of the lake. (templated)
    :param message: accepted as by every operator, but unused. (templated)
    :return: ``{"findings": 0, "ignored": {"table-stats-narrow": 2}, "sample": 1.0}``
    """

    template_fields: Sequence[str] = ("tables", "sample", "ignore", *DuckLakeOperator.template_fields)

    def __init__(
        self,
        *,
        tables: Sequence[str] | str | None = None,
        sample: float | str = 1.0,
        ignore: Collection[str] = (),
        **kwargs: Any,  # noqa: ANN401 - Airflow's
    ) -> None:
        super().__init__(**kwargs)
        self.tables = tables
        self.sample = sample
        self.ignore = ignore

    @no_retry_on_user_errors()
    def execute(self, context: Context) -> dict[str, Any]:
        """Verify, and fail if something was found."""
        ignored, sample = _codes(self.ignore), _share(self.sample)
        with closing(DuckLakeHook(self.ducklake_conn_id, hook_lineage=False).lake()) as lake:
            found = lake.verify(table_names(self.tables), sample=sample)
        wrong = [one for one in found if one.code not in ignored]
        for finding in wrong:
            self.log.error("%s %s", finding, finding.remedy)
        if wrong:
            hand_on(context, "findings", [one.as_json() for one in wrong[:_HANDED_ON]])
            raise AirflowFailException(_text(wrong))
        counts = Counter(one.code.value for one in found)
        return {"findings": 0, "ignored": dict(counts), "sample": sample}


def _text(findings: Sequence[Finding]) -> str:
    counts = Counter(one.code.value for one in findings)
    listed = ", ".join(f"{number} {code}" for code, number in counts.most_common())
    shown = "".join(f"\n  - {short_line(f'{one} {one.remedy}')}" for one in findings[:_SHOWN])
    return f"The lake has {len(findings)} findings ({listed}):{shown}"


def _codes(words: Collection[str]) -> frozenset[FindingCode]:
    try:
        return frozenset(FindingCode(word) for word in ([words] if isinstance(words, str) else words))
    except ValueError as error:
        raise InvalidInputError(f"ignore: {error}; choose from {', '.join(FindingCode)}.") from None


def _share(value: float | str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InvalidInputError(
            f"sample is {value!r}; give the fraction of files to open, from 0 to 1."
        ) from None
