"""What a run compared of the lakes that the reference wrote, with the number of each feature."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

PROPERTY, BY_SPARK = "corpus", "corpus by Spark"
COMPARED = "compared"


def lines(stats: dict[str, list[Any]]) -> Iterator[str]:
    """Yield the counts that tests noted; nothing if none did."""
    counts = _noted(stats, PROPERTY)
    if counts:
        yield f"{counts.pop(COMPARED)} tables at a snapshot compared; of these features:"
        yield ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
    by_spark = _noted(stats, BY_SPARK)
    if by_spark:
        yield f"{by_spark[COMPARED]} tables at a snapshot read by Spark as well"


def _noted(stats: dict[str, list[Any]], name: str) -> Counter[str]:
    counts: Counter[str] = Counter()
    for report in stats.get("passed", []):
        counts.update(dict(getattr(report, "user_properties", ())).get(name, {}))
    return counts
