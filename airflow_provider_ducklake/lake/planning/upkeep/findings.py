"""What is wrong with a lake: findings, each with a code and a remedy.

*Source:* the invariants that the reference relies on (docs/sources.md, known faults).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self, TypeAlias

from ...errors import one_line

Named: TypeAlias = int | str | None

_REPAIR = "lake.repair fixes this without losing anything."
_RESTORE = "Restore the catalog or the table to a time before this happened."
_REWRITE = "Rewrite the table's rows, for example into a new table, from a snapshot that reads correctly."


class FindingCode(StrEnum):
    """Every kind of finding, by what it is about, with what can be done about it."""

    remedy: str

    def __new__(cls, code: str, remedy: str = "") -> Self:
        """Make a code, which is a string, with its remedy."""
        made = str.__new__(cls, code)
        made._value_, made.remedy = code, remedy
        return made

    # rows of any kind
    VALUE_MISSING = "value-missing", "Correct the rows in the catalog, or restore it from a backup."
    # snapshots
    CHANGES_MISSING = "changes-missing", _REPAIR + " What the snapshot changed stays unknown."
    CHANGES_UNREADABLE = (
        "changes-unreadable",
        "Correct the text in ducklake_snapshot_changes, or expire the snapshot.",
    )
    COUNTER_FELL = "counter-fell", "Look for a client that writes wrong counters; then repair what it left."
    SCHEMA_VERSION_STOOD = (
        "schema-version-stood",
        "Restart DuckDB clients that run since then; fix the writer.",
    )
    FILE_COUNTER_STOOD = "file-counter-stood", "Restart DuckDB clients that run since then; fix the writer."
    COUNTER_BEHIND = "counter-behind", _REPAIR
    TAG_WITHOUT_SNAPSHOT = (
        "tag-without-snapshot",
        "Remove the tag with lake.untag or DuckLakeTagOperator, or restore the catalog from a backup.",
    )
    # rows with a begin and an end
    ENDS_BEFORE_BEGIN = "ends-before-begin", _RESTORE
    IN_THE_FUTURE = "in-the-future", _RESTORE
    TWO_AT_ONCE = "two-at-once", "End all but one of these rows in the catalog."
    COLUMN_TWICE = (
        "column-twice",
        _REPAIR + " Until then the row that began last counts; DuckDB shows the column under both names.",
    )
    NAME_TWICE = "name-twice", "Rename one of them in the catalog."
    # definitions
    COLUMNS_TOO_NEW = (
        "columns-too-new",
        "Migrate the lake to the version that has them with DuckLakeMigrateOperator, or drop them.",
    )
    COLUMNS_UNREADABLE = (
        "columns-unreadable",
        "Correct or restore the rows in ducklake_column: until then DuckDB may open no table of the lake.",
    )
    SCHEMA_CIRCLE = (
        "schema-circle",
        "Correct parent_schema_id of one of them in ducklake_schema, or restore the catalog from a backup.",
    )
    SCHEMA_MISSING = "schema-missing", "Restore the schema's row, or end everything in the schema."
    SCHEMA_VERSION_MISSING = "schema-version-missing", _REPAIR
    PARTITION_KEY_UNKNOWN = "partition-key-unknown", "Set the table's partitioning again."
    # rows of files
    TABLE_UNKNOWN = "table-unknown", _RESTORE
    TABLE_ENDED = "table-ended", _REPAIR
    DATA_FILE_UNKNOWN = "data-file-unknown", _RESTORE
    TWO_DELETE_FILES = (
        "two-delete-files",
        "Expire the snapshots that see both, or rewrite the table's data files.",
    )
    MAPPING_UNKNOWN = "mapping-unknown", _RESTORE
    PARTITION_UNKNOWN = "partition-unknown", _RESTORE
    PARTITION_VALUES_MISSING = "partition-values-missing", _REWRITE
    COUNT_IMPOSSIBLE = "count-impossible", _RESTORE
    PARTIAL_MAX_WRONG = "partial-max-wrong", _RESTORE
    ROWS_OF_NOTHING = "rows-of-nothing", _REPAIR
    ROW_IDS_OVERLAP = "row-ids-overlap", _REWRITE
    ROW_COUNTER_BEHIND = "row-counter-behind", _REPAIR
    # paths
    PATH_MISLEADING = (
        "path-misleading",
        (
            "Find out who wrote the row, and correct or remove it in the catalog; nothing is read, written "
            "or deleted there."
        ),
    )
    PATH_TWICE = (
        "path-twice",
        (
            "Do not expire snapshots or clean up files before one of the rows has a copy of the file under a "
            "new name: once one row is cleaned up, the file is deleted."
        ),
    )
    SCHEDULED_IN_USE = "scheduled-in-use", _REPAIR + " Do not clean up files until then."
    SCHEDULED_REFUSED = (
        "scheduled-refused",
        (
            "If the lake owns the file, set foreign_files to true in its connection; otherwise find out who "
            "wrote the row, and remove it from ducklake_files_scheduled_for_deletion."
        ),
    )
    OUTSIDE_DATA_PATH = (
        "outside-data-path",
        "Nothing is wrong: the lake owns the file and will delete it in the end.",
    )
    # partitions
    BUCKET_VALUES_MISSING = (
        "bucket-values-missing",
        (
            "Write the rows again, with an INSERT that overwrites the table with its own rows or an UPDATE "
            "that sets the column to itself; or give the table keys without a bucket."
        ),
    )
    PARTITION_FOLDERS_DIFFER = (
        "partition-folders-differ",
        "Compact the table with DuckLakeSparkMergeAdjacentFilesOperator before DuckDB does.",
    )
    # statistics
    TABLE_STATS_MISSING = "table-stats-missing", _REPAIR
    TABLE_STATS_NARROW = "table-stats-narrow", _REPAIR
    BOUND_UNREADABLE = "bound-unreadable", _REPAIR
    BOUNDS_CROSSED = "bounds-crossed", _REPAIR
    EXACT_WITHOUT_BOUND = "exact-without-bound", _REPAIR
    # rows in the catalog
    INLINED_TABLE_MISSING = "inlined-table-missing", _REPAIR
    INLINED_TABLE_UNREGISTERED = (
        "inlined-table-unregistered",
        "Register it in ducklake_inlined_data_tables, or drop it.",
    )
    INLINED_COLUMNS_DIFFER = (
        "inlined-columns-differ",
        "Flush the table's inlined data; if it has none, run lake.repair.",
    )
    INLINED_ROWS_WRONG = "inlined-rows-wrong", "Correct the rows in the catalog."
    INLINED_VALUE_UNREADABLE = "inlined-value-unreadable", "Correct the value in the catalog."
    INLINED_DELETE_OUTSIDE = (
        "inlined-delete-outside",
        "Look at these inlined deletes, then delete them from the catalog.",
    )
    # files themselves
    FILE_MISSING = "file-missing", "Restore the file from a backup, or delete the rows that it had."
    FILE_UNREADABLE = "file-unreadable", "Restore the file from a backup, or delete the rows that it had."
    FILE_SIZE_DIFFERS = "file-size-differs", _REPAIR
    FOOTER_SIZE_DIFFERS = "footer-size-differs", _REPAIR
    RECORD_COUNT_DIFFERS = (
        "record-count-differs",
        "Find out whether the file was replaced; " + _REWRITE.lower(),
    )
    FIELD_IDS_MISSING = (
        "field-ids-missing",
        "Add the file with DuckLakeAddFilesOperator, which maps its names.",
    )
    ROW_IDS_MISSING = "row-ids-missing", _REWRITE
    ROW_ID_TWICE = (
        "row-id-twice",
        "Look at the rows with these ids (rowid); delete duplicates by their values.",
    )
    SNAPSHOT_IDS_MISSING = "snapshot-ids-missing", _RESTORE
    FILE_STATS_NARROW = "file-stats-narrow", _REPAIR
    FILE_STATS_INEXACT = "file-stats-inexact", _REPAIR
    FILE_STATS_COUNTS = "file-stats-counts", _REPAIR
    PARTITION_VALUE_DIFFERS = "partition-value-differs", _REWRITE
    TYPE_NARROWER = (
        "type-narrower",
        "Write the rows again, with an UPDATE that sets the column to itself, or a merge of such files.",
    )
    DELETE_COUNT_DIFFERS = "delete-count-differs", _REPAIR
    DELETES_UNORDERED = "deletes-unordered", "Write the delete file again, sorted, under a new name."
    VECTORS_TOO_NEW = (
        "vectors-too-new",
        "Rewrite the table's files with DuckLakeSparkRewriteDataFilesOperator, or migrate the lake to 1.1.",
    )
    DELETE_OUTSIDE = "delete-outside", "Find out whether the data file was replaced by another."


NOTES = frozenset(
    {
        FindingCode.OUTSIDE_DATA_PATH,
        FindingCode.BUCKET_VALUES_MISSING,
        FindingCode.PARTITION_FOLDERS_DIFFER,
        FindingCode.TYPE_NARROWER,
    }
)
REPAIRABLE = frozenset(code for code in FindingCode if code.remedy.startswith(_REPAIR))


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong: a sentence that names it, and ids that programs find it by.

    ``objects`` are such as ``{"table_id": 2, "data_file_id": 7}``, with what a repair needs.
    """

    code: FindingCode
    sentence: str
    objects: Mapping[str, Named] = field(default_factory=dict)

    @property
    def remedy(self) -> str:
        """The remedy."""
        return self.code.remedy

    @property
    def is_note(self) -> bool:
        """Return True if it is only a note: the format allows it."""
        return self.code in NOTES

    def __str__(self) -> str:
        return one_line(f"{self.code}: {self.sentence}")

    def as_json(self) -> dict[str, object]:
        """Return it as plain values."""
        return {
            "code": self.code.value,
            "sentence": self.sentence,
            "objects": dict(self.objects),
            "remedy": self.remedy,
        }
