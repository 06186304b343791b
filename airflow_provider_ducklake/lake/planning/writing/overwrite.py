"""Which data files new rows replace, those of the same partitions; and which rows a write read or replaced.

A file belongs to a partition as a whole, to none of them, or may hold rows of one and of others. Its own
partition values decide, by whichever keys it was written, else its statistics. Year, month, day and hour of a
timestamptz do not count: each writer takes them in the time zone of its session. There the file's bounds
decide, in UTC.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from ...format import partitioning as keys
from ...format.types.ducklake_types import BYTES, DuckLakeType, is_float
from ...format.types.literals import parse_scalar
from ...format.types.values import as_float32, is_infinite
from ..reading import predicates as terms
from ..reading.predicates import column_ids
from ..reading.pruning import all_match, evidence, file_may_match

if TYPE_CHECKING:
    from ...format.files import LiveDataFile
    from ...format.snapshots import ColumnId, PartitionId, SnapshotId, TableSnapshot


PartitionValues: TypeAlias = "tuple[str | None, ...]"


@dataclass(frozen=True, slots=True)
class Replaced:
    """Files whose rows are all replaced, and files that may have replaced rows."""

    whole: tuple[LiveDataFile, ...]
    partly: tuple[LiveDataFile, ...]


@dataclass(frozen=True)
class Partitions:
    """Partitions of a table, by their values for the keys ``fields``.

    ``types`` are those of the table's columns and fields, ``specs`` all partitionings that it ever had. Files
    from before ``bucketed_since`` have buckets of a column by another type.
    """

    fields: tuple[keys.PartitionField, ...]
    wanted: frozenset[PartitionValues]
    types: Mapping[ColumnId, DuckLakeType]
    specs: Mapping[PartitionId, keys.PartitionSpec]
    bucketed_since: Mapping[ColumnId, SnapshotId]

    def replaced(self, files: Iterable[LiveDataFile]) -> Replaced:
        """Return the files that hold rows of these partitions, and those that may."""
        found = [(file, self._holds(file)) for file in files]
        return Replaced(
            whole=tuple(file for file, answer in found if answer is True),
            partly=tuple(file for file, answer in found if answer is None),
        )

    def may_hold(self, file: LiveDataFile) -> bool:
        """Return True if a file may hold rows of one of the partitions."""
        return self._holds(file) is not False

    def _holds(self, file: LiveDataFile) -> bool | None:
        """Return True if a file's rows are those of one of the partitions; None: some may be."""
        spec = None if file.partition_id is None else self.specs.get(file.partition_id)
        if spec is not None and (
            len(spec.fields) != len(file.partition_values)
            or has_other_buckets(file, spec, self.bucketed_since)
        ):
            spec = None
        own = self._own_values(file, spec)
        if own is not None:
            key = self._key(own)
            if key is not None and key not in self._keys:
                return False
            if key is not None and (own in self.wanted or not self._has_floats):
                return True
        if not file_may_match(self._any, file, self.types, self.specs):
            return False
        answers = {self._holds_one(file, spec, values) for values in self.wanted}
        return True if True in answers else None if None in answers else False

    def _own_values(self, file: LiveDataFile, spec: keys.PartitionSpec | None) -> PartitionValues | None:
        """Return the values that all rows of a file have, in UTC, where it was written by the same keys."""
        if spec is None or spec.fields != self.fields:
            return None
        values: list[str | None] = []
        for field, text in zip(self.fields, file.partition_values, strict=True):
            type_ = self.types[field.column_id]
            found = (
                _calendar_values(file, spec, field, type_)
                if keys.is_local(field.transform, type_)
                else {text}
            )
            if found is None or len(found) != 1:
                return None
            values += found
        return tuple(values)

    def _holds_one(
        self, file: LiveDataFile, spec: keys.PartitionSpec | None, values: PartitionValues
    ) -> bool | None:
        answers = [
            self._fits(file, spec, field, text) for field, text in zip(self.fields, values, strict=True)
        ]
        return False if False in answers else None if None in answers else True

    def _fits(
        self,
        file: LiveDataFile,
        spec: keys.PartitionSpec | None,
        field: keys.PartitionField,
        text: str | None,
    ) -> bool | None:
        """Return True if all rows of a file have that value of a key; None: some may."""
        type_ = self.types[field.column_id]
        decided = _decided_by_values(file, spec, field, type_, text)
        if decided is not None:
            return decided
        if field.transform.kind in keys.OF_TIMES:
            found = _calendar_values(file, spec, field, type_)
            return None if found is None or (text in found and len(found) > 1) else text in found
        wanted = _condition(field, type_, text)
        if wanted is None:
            return None
        if not file_may_match(wanted, file, self.types, self.specs):
            return False
        return True if all_match(wanted, file, self.types, self.specs) else None

    @cached_property
    def _keys(self) -> frozenset[tuple[terms.OrderKey, ...] | None]:
        return frozenset(self._key(values) for values in self.wanted)

    def _key(self, values: PartitionValues) -> tuple[terms.OrderKey, ...] | None:
        """Return a key that is equal for equal values, however they are spelled; None: unreadable."""
        pairs = zip(self.fields, values, strict=True)
        try:
            return tuple(_comparable(field, self.types[field.column_id], text) for field, text in pairs)
        except (ValueError, ArithmeticError):
            return None

    @cached_property
    def _has_floats(self) -> bool:
        return any(is_float(self.types[field.column_id]) for field in self.fields)

    @cached_property
    def _any(self) -> terms.Predicate:
        """The filter for rows of all these partitions: one of their values in each identity key."""
        return terms.AllOf(tuple(self._conditions()))

    def _conditions(self) -> Iterator[terms.Predicate]:
        for number, field in enumerate(self.fields):
            if field.transform.kind is keys.TransformKind.IDENTITY:
                type_ = self.types[field.column_id]
                texts = {values[number] for values in self.wanted}
                found = sorted(
                    (parse_scalar(type_, text) for text in texts if text is not None), key=terms.order
                )
                yield terms.AnyOf(
                    (terms.Membership(field.column_id, tuple(found)), terms.NullTest(field.column_id))
                )


def has_other_buckets(
    file: LiveDataFile, spec: keys.PartitionSpec, bucketed_since: Mapping[ColumnId, SnapshotId]
) -> bool:
    """Return True if a file has buckets of a column that are not those of its current type."""
    return any(
        own.transform.kind is keys.TransformKind.BUCKET
        and file.begin_snapshot < bucketed_since.get(own.column_id, 0)
        for own in spec.fields
    )


def _calendar_values(
    file: LiveDataFile, spec: keys.PartitionSpec | None, field: keys.PartitionField, type_: DuckLakeType
) -> frozenset[str | None] | None:
    """List all values of year, month, day or hour that rows of a file can have; None: unknown."""
    if _has_no_calendar(file, spec, field):
        return frozenset({None})
    known = list(evidence(file, field.column_id, type_, spec))
    if not all(one.has_values for one in known):
        return frozenset({None})
    low = max((one.low for one in known if one.low is not None), default=None)
    high = min((one.high for one in known if one.high is not None), default=None)
    if low is None or high is None or is_infinite(type_, low) or is_infinite(type_, high):
        return None
    found = keys.calendar_values(field.transform, type_, low, high)
    return found | {None} if found is not None and all(one.has_nulls for one in known) else found


def _has_no_calendar(file: LiveDataFile, spec: keys.PartitionSpec | None, field: keys.PartitionField) -> bool:
    """Return True if all values are NULL or infinite: no writer gives these a year, month, day or hour."""
    pairs = () if spec is None else zip(spec.fields, file.partition_values, strict=True)
    return any(
        own.column_id == field.column_id and own.transform.kind in keys.OF_TIMES and text is None
        for own, text in pairs
    )


def _decided_by_values(
    file: LiveDataFile,
    spec: keys.PartitionSpec | None,
    field: keys.PartitionField,
    type_: DuckLakeType,
    text: str | None,
) -> bool | None:
    """Decide by a file's own partition values if all its rows have a value of a key; None: undecided."""
    for own, value in () if spec is None else zip(spec.fields, file.partition_values, strict=True):
        if own.column_id == field.column_id:
            try:
                decided = _same(own, field, type_, value, text)
            except (ValueError, ArithmeticError):
                continue  # the text of no value
            if decided is not None:
                return decided
    return None


def _same(
    own: keys.PartitionField,
    field: keys.PartitionField,
    type_: DuckLakeType,
    value: str | None,
    text: str | None,
) -> bool | None:
    if own.transform == field.transform:
        if keys.is_local(field.transform, type_) and None not in (value, text):
            return None
        if _comparable(field, type_, value) != _comparable(field, type_, text):
            return False
        return True if value == text or not is_float(type_) else None
    if own.transform.kind is keys.TransformKind.IDENTITY and not is_float(type_):
        physical = None if value is None else parse_scalar(type_, value)
        return keys.partition_value(field.transform, type_, physical) == text
    return None


def _comparable(field: keys.PartitionField, type_: DuckLakeType, text: str | None) -> terms.OrderKey:
    """Return a key that is equal for two texts of one value: floats may have been rounded to 32 bits."""
    if text is None:
        return None
    if field.transform.kind is not keys.TransformKind.IDENTITY:
        return int(text)
    if type_.facts.kind in BYTES:
        return text
    value = parse_scalar(type_, text)
    return terms.order(as_float32(value) if isinstance(value, float) else value)


def _condition(field: keys.PartitionField, type_: DuckLakeType, text: str | None) -> terms.Predicate | None:
    """Build the filter for rows with that value of a key; None: no filter can express it."""
    column_id = field.column_id
    match field.transform.kind:
        case keys.TransformKind.IDENTITY if text is None:
            return terms.NullTest(column_id)
        case keys.TransformKind.IDENTITY:
            return terms.Comparison(column_id, terms.Operator.EQUAL, parse_scalar(type_, text or ""))
        case _:
            return None


# Which rows of a table a write read, or replaced: what others do with other rows is no conflict.
#
# A scope may be wider than the rows, never narrower: what is not known of a file, or cannot be read of a
# condition, counts as one of them.


@dataclass(frozen=True)
class RowScope:
    """Rows of ``table`` as it was read: those of ``partitions``, or else those that satisfy ``where``."""

    table: TableSnapshot
    where: terms.Predicate = terms.ALWAYS
    partitions: Partitions | None = None

    @cached_property
    def column_ids(self) -> frozenset[ColumnId]:
        """The columns whose statistics decide whether a file may hold such rows."""
        if self.partitions is not None:
            return frozenset(field.column_id for field in self.partitions.fields)
        return frozenset(column_ids(self.where))

    def may_hold(self, file: LiveDataFile, specs: Mapping[PartitionId, keys.PartitionSpec]) -> bool:
        """Return True if a file may hold such rows, even deleted; ``specs`` are all that the table had."""
        if self.partitions is not None:
            return self.partitions.may_hold(file)
        types = {column.id: column.type for column in self.table.schema.walk()}
        return file_may_match(self.where, file, types, specs)
