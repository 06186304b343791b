"""What is wrong with a lake: findings, each of a kind that has a code and a remedy.

*Source:* the invariants that the reference relies on (docs/sources.md, known faults).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

Named: TypeAlias = int | str | None


class FindingCode(StrEnum):
    """Every kind of finding, by what it is about."""

    # snapshots
    CHANGES_MISSING = "changes-missing"
    CHANGES_UNREADABLE = "changes-unreadable"
    COUNTER_FELL = "counter-fell"
    SCHEMA_VERSION_STOOD = "schema-version-stood"
    FILE_COUNTER_STOOD = "file-counter-stood"
    COUNTER_BEHIND = "counter-behind"
    # rows with a begin and an end
    ENDS_BEFORE_BEGIN = "ends-before-begin"
    IN_THE_FUTURE = "in-the-future"
    TWO_AT_ONCE = "two-at-once"
    NAME_TWICE = "name-twice"
    # definitions
    NO_COLUMNS = "no-columns"
    SCHEMA_MISSING = "schema-missing"
    TYPE_UNKNOWN = "type-unknown"
    PARENT_MISSING = "parent-missing"
    CHILDREN_WRONG = "children-wrong"
    DEFAULT_UNREADABLE = "default-unreadable"
    SCHEMA_VERSION_MISSING = "schema-version-missing"
    PARTITION_KEY_UNKNOWN = "partition-key-unknown"
    # rows of files
    TABLE_UNKNOWN = "table-unknown"
    TABLE_ENDED = "table-ended"
    DATA_FILE_UNKNOWN = "data-file-unknown"
    TWO_DELETE_FILES = "two-delete-files"
    MAPPING_UNKNOWN = "mapping-unknown"
    PARTITION_UNKNOWN = "partition-unknown"
    PARTITION_VALUES_MISSING = "partition-values-missing"
    COUNT_IMPOSSIBLE = "count-impossible"
    PARTIAL_MAX_WRONG = "partial-max-wrong"
    ROWS_OF_NOTHING = "rows-of-nothing"
    ROW_IDS_OVERLAP = "row-ids-overlap"
    ROW_COUNTER_BEHIND = "row-counter-behind"
    # paths
    PATH_MISLEADING = "path-misleading"
    PATH_TWICE = "path-twice"
    SCHEDULED_IN_USE = "scheduled-in-use"
    SCHEDULED_REFUSED = "scheduled-refused"
    OUTSIDE_DATA_PATH = "outside-data-path"
    # statistics
    TABLE_STATS_MISSING = "table-stats-missing"
    TABLE_STATS_NARROW = "table-stats-narrow"
    BOUND_UNREADABLE = "bound-unreadable"
    BOUNDS_CROSSED = "bounds-crossed"
    # rows in the catalog
    INLINED_TABLE_MISSING = "inlined-table-missing"
    INLINED_TABLE_UNREGISTERED = "inlined-table-unregistered"
    INLINED_COLUMNS_DIFFER = "inlined-columns-differ"
    INLINED_ROWS_WRONG = "inlined-rows-wrong"
    INLINED_DELETE_OUTSIDE = "inlined-delete-outside"
    # files themselves
    FILE_MISSING = "file-missing"
    FILE_UNREADABLE = "file-unreadable"
    FILE_SIZE_DIFFERS = "file-size-differs"
    FOOTER_SIZE_DIFFERS = "footer-size-differs"
    RECORD_COUNT_DIFFERS = "record-count-differs"
    FIELD_IDS_MISSING = "field-ids-missing"
    ROW_IDS_MISSING = "row-ids-missing"
    ROW_ID_TWICE = "row-id-twice"
    SNAPSHOT_IDS_MISSING = "snapshot-ids-missing"
    FILE_STATS_NARROW = "file-stats-narrow"
    FILE_STATS_COUNTS = "file-stats-counts"
    PARTITION_VALUE_DIFFERS = "partition-value-differs"
    DELETE_COUNT_DIFFERS = "delete-count-differs"
    DELETES_UNORDERED = "deletes-unordered"
    DELETE_OUTSIDE = "delete-outside"


_REPAIR = "lake.repair fixes this without losing anything."
_RESTORE = "Restore the catalog or the table to a time before this happened."
_REWRITE = "Rewrite the table's rows, for example into a new table, from a snapshot that reads correctly."

REMEDIES: Mapping[FindingCode, str] = {
    FindingCode.CHANGES_MISSING: _REPAIR + " What the snapshot changed stays unknown.",
    FindingCode.CHANGES_UNREADABLE: "Correct the text in ducklake_snapshot_changes, or expire the snapshot.",
    FindingCode.COUNTER_FELL: "Look for a client that writes wrong counters; then repair what it left.",
    FindingCode.SCHEMA_VERSION_STOOD: "Restart DuckDB clients that run since then; fix the writer.",
    FindingCode.FILE_COUNTER_STOOD: "Restart DuckDB clients that run since then; fix the writer.",
    FindingCode.COUNTER_BEHIND: _REPAIR,
    FindingCode.ENDS_BEFORE_BEGIN: _RESTORE,
    FindingCode.IN_THE_FUTURE: _RESTORE,
    FindingCode.TWO_AT_ONCE: "End all but one of these rows in the catalog.",
    FindingCode.NAME_TWICE: "Rename one of them in the catalog.",
    FindingCode.NO_COLUMNS: "Drop the table with DuckLakeDDLOperator, or restore its columns.",
    FindingCode.SCHEMA_MISSING: "Restore the schema's row, or end everything in the schema.",
    FindingCode.TYPE_UNKNOWN: "Correct the type in ducklake_column; until then DuckDB refuses the lake.",
    FindingCode.PARENT_MISSING: _RESTORE,
    FindingCode.CHILDREN_WRONG: _RESTORE,
    FindingCode.DEFAULT_UNREADABLE: "Correct initial_default in ducklake_column.",
    FindingCode.SCHEMA_VERSION_MISSING: _REPAIR,
    FindingCode.PARTITION_KEY_UNKNOWN: "Set the table's partitioning again.",
    FindingCode.TABLE_UNKNOWN: _RESTORE,
    FindingCode.TABLE_ENDED: _REPAIR,
    FindingCode.DATA_FILE_UNKNOWN: _RESTORE,
    FindingCode.TWO_DELETE_FILES: "Expire the snapshots that see both, or rewrite the table's data files.",
    FindingCode.MAPPING_UNKNOWN: _RESTORE,
    FindingCode.PARTITION_UNKNOWN: _RESTORE,
    FindingCode.PARTITION_VALUES_MISSING: _REWRITE,
    FindingCode.COUNT_IMPOSSIBLE: _RESTORE,
    FindingCode.PARTIAL_MAX_WRONG: _RESTORE,
    FindingCode.ROWS_OF_NOTHING: _REPAIR,
    FindingCode.ROW_IDS_OVERLAP: _REWRITE,
    FindingCode.ROW_COUNTER_BEHIND: _REPAIR,
    FindingCode.PATH_MISLEADING: (
        "Find out who wrote the row, and correct or remove it in the catalog; nothing is read, written or "
        "deleted there."
    ),
    FindingCode.PATH_TWICE: (
        "Do not expire snapshots or clean up files before one of the rows has a copy of the file under a "
        "new name: once one row is cleaned up, the file is deleted."
    ),
    FindingCode.SCHEDULED_IN_USE: _REPAIR + " Do not clean up files until then.",
    FindingCode.SCHEDULED_REFUSED: (
        "If the lake owns the file, set foreign_files to true in its connection; otherwise find out who "
        "wrote the row, and remove it from ducklake_files_scheduled_for_deletion."
    ),
    FindingCode.OUTSIDE_DATA_PATH: "Nothing is wrong: the lake owns the file and will delete it in the end.",
    FindingCode.TABLE_STATS_MISSING: _REPAIR,
    FindingCode.TABLE_STATS_NARROW: _REPAIR,
    FindingCode.BOUND_UNREADABLE: _REPAIR,
    FindingCode.BOUNDS_CROSSED: _REPAIR,
    FindingCode.INLINED_TABLE_MISSING: _REPAIR,
    FindingCode.INLINED_TABLE_UNREGISTERED: "Register it in ducklake_inlined_data_tables, or drop it.",
    FindingCode.INLINED_COLUMNS_DIFFER: "Flush the table's inlined data; if it has none, run lake.repair.",
    FindingCode.INLINED_ROWS_WRONG: "Correct the rows in the catalog.",
    FindingCode.INLINED_DELETE_OUTSIDE: "Look at these inlined deletes, then delete them from the catalog.",
    FindingCode.FILE_MISSING: "Restore the file from a backup, or delete the rows that it had.",
    FindingCode.FILE_UNREADABLE: "Restore the file from a backup, or delete the rows that it had.",
    FindingCode.FILE_SIZE_DIFFERS: _REPAIR,
    FindingCode.FOOTER_SIZE_DIFFERS: _REPAIR,
    FindingCode.RECORD_COUNT_DIFFERS: "Find out whether the file was replaced; " + _REWRITE.lower(),
    FindingCode.FIELD_IDS_MISSING: "Add the file with DuckLakeAddFilesOperator, which maps its names.",
    FindingCode.ROW_IDS_MISSING: _REWRITE,
    FindingCode.ROW_ID_TWICE: "Look at the rows with these ids (rowid); delete duplicates by their values.",
    FindingCode.SNAPSHOT_IDS_MISSING: _RESTORE,
    FindingCode.FILE_STATS_NARROW: _REPAIR,
    FindingCode.FILE_STATS_COUNTS: _REPAIR,
    FindingCode.PARTITION_VALUE_DIFFERS: _REWRITE,
    FindingCode.DELETE_COUNT_DIFFERS: _REPAIR,
    FindingCode.DELETES_UNORDERED: "Write the delete file again, sorted, under a new name.",
    FindingCode.DELETE_OUTSIDE: "Find out whether the data file was replaced by another.",
}

NOTES = frozenset({FindingCode.OUTSIDE_DATA_PATH})
MENDABLE = frozenset(code for code, remedy in REMEDIES.items() if remedy.startswith(_REPAIR))


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong: a sentence that names it, and ids that programs find it by.

    ``objects`` are such as ``{"table_id": 2, "data_file_id": 7}``, with what a repair needs to know.
    """

    code: FindingCode
    sentence: str
    objects: Mapping[str, Named] = field(default_factory=dict)

    @property
    def remedy(self) -> str:
        """What can be done about it."""
        return REMEDIES[self.code]

    @property
    def is_note(self) -> bool:
        """Whether it is only worth knowing: the format allows it."""
        return self.code in NOTES

    def __str__(self) -> str:
        return f"{self.code}: {self.sentence}"

    def as_json(self) -> dict[str, object]:
        """Return it as plain values."""
        return {
            "code": self.code.value,
            "sentence": self.sentence,
            "objects": dict(self.objects),
            "remedy": self.remedy,
        }
