"""Is a filter true for all rows of a data file? No, unless its statistics say so.

The other side of ``planning.pruning``, told by the same evidence: all rows match where no row is NULL in the
filter's column and none can meet the opposite condition.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_provider_ducklake.planning.reading.predicates import (
    NEGATED,
    AllOf,
    AnyOf,
    Comparison,
    NullTest,
)
from airflow_provider_ducklake.planning.reading.pruning import may_match

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_provider_ducklake.planning.reading.predicates import Predicate
    from airflow_provider_ducklake.spec.files import LiveDataFile
    from airflow_provider_ducklake.spec.ids import ColumnId, PartitionId
    from airflow_provider_ducklake.spec.partitioning import PartitionSpec
    from airflow_provider_ducklake.spec.types.ducklake_types import DuckLakeType


def all_match(
    predicate: Predicate,
    file: LiveDataFile,
    types: Mapping[ColumnId, DuckLakeType],
    partition_specs: Mapping[PartitionId, PartitionSpec],
) -> bool:
    """Whether the filter is surely true for every row of a file, deleted ones too."""
    match predicate:
        case AllOf(parts):
            return all(all_match(part, file, types, partition_specs) for part in parts)
        case AnyOf(parts):
            return any(all_match(part, file, types, partition_specs) for part in parts)
        case NullTest(column_id, negated):
            return not may_match(NullTest(column_id, not negated), file, types, partition_specs)
        case Comparison(column_id, operator, value):
            opposite: Predicate = Comparison(column_id, NEGATED[operator], value)
        case _:
            opposite = replace(predicate, negated=not predicate.negated)
    is_null = NullTest(predicate.column_id)
    return not may_match(AnyOf((opposite, is_null)), file, types, partition_specs)
