"""The answers to deliberate mistakes, as the tests of a run noted them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any


def lines(stats: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    """Yield what a person reads first of each answer, then how many mistakes were answered."""
    found = [
        (dict(report.user_properties), kind == "passed")
        for kind in ("passed", "failed")
        for report in stats.get(kind, ())
        if getattr(report, "when", "") == "call" and "mistake" in dict(report.user_properties)
    ]
    for properties, is_answered in sorted(found, key=lambda one: one[0]["mistake"]):
        yield f"{'    ' if is_answered else 'POOR'} {properties['mistake']}: {properties['answer']}"
    if found:
        yield f"{sum(is_answered for _, is_answered in found)} of {len(found)} answered"
