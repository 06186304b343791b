"""How a partition is called outside the lake: in events, and as a partition key of Airflow.

Year, month, day and hour of one column, as far as a table has them in this order, are one key, written as ISO
8601 does; everything else is called as its folder is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.spec.names.identifiers import fold
from airflow_provider_ducklake.lake.spec.partitioning import HIVE_NULL, TransformKind, escape

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from airflow_provider_ducklake.lake.spec.partitioning import PartitionField
    from airflow_provider_ducklake.lake.spec.schema import TableSchema

_UNITS = (TransformKind.YEAR, TransformKind.MONTH, TransformKind.DAY, TransformKind.HOUR)
_JOINTS = ("", "-", "-", "T")
_WIDTHS = (4, 2, 2, 2)


def partition_key(fields: Sequence[PartitionField], schema: TableSchema, values: Sequence[str | None]) -> str:
    """Return the name of a partition, e.g. ``month=2026-11`` or ``region=eu/day=2026-11-25``."""
    taken: set[str] = set()
    parts: list[str] = []
    for group, texts in _groups(fields, values):
        last = group[-1]
        column = schema.by_id(last.column_id).name
        kind = last.transform.kind
        word = column if kind is TransformKind.IDENTITY else kind.value
        word = f"{word}_{column}" if fold(word) in taken else word
        taken.add(fold(word))
        parts.append(f"{escape(word)}={_written(texts)}")
    return "/".join(parts)


def _groups(
    fields: Sequence[PartitionField], values: Sequence[str | None]
) -> Iterator[tuple[list[PartitionField], list[str | None]]]:
    """Yield the keys that make one, with their values."""
    group: list[PartitionField] = []
    texts: list[str | None] = []
    for field, value in zip(fields, values, strict=True):
        if group and not _continues(group, field):
            yield group, texts
            group, texts = [], []
        group, texts = [*group, field], [*texts, value]
    if group:
        yield group, texts


def _continues(group: Sequence[PartitionField], field: PartitionField) -> bool:
    kinds = [one.transform.kind for one in (*group, field)]
    return kinds == list(_UNITS[: len(kinds)]) and field.column_id == group[0].column_id


def _written(texts: Sequence[str | None]) -> str:
    if None in texts:
        return HIVE_NULL
    if len(texts) == 1:
        return escape(str(texts[0]))
    units = zip(_JOINTS, texts, _WIDTHS, strict=False)
    return "".join(f"{joint}{text:0>{width}}" for joint, text, width in units)
