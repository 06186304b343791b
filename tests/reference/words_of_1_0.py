"""What a dump of a 1.1 lake has besides the words of 1.0."""

from typing import Any

Row = dict[str, Any]

APPENDED = {
    "ducklake_schema": ("parent_schema_id",),
    "ducklake_data_file": ("row_group_count",),
    "ducklake_delete_file": ("row_group_count",),
    "ducklake_file_column_stats": ("min_is_exact", "max_is_exact"),
    "ducklake_table_column_stats": ("min_is_exact", "max_is_exact"),
}
SYSTEM = "_ducklake_"  # begins the names of 1.1's own columns of inlined tables


def in_words_of_1_0(dump: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """Leave out of a 1.1 lake's dump what 1.0 has no columns for; there are no comments on views' columns."""
    found = {name: [_without(row, name) for row in rows] for name, rows in dump.items()}
    assert found.pop("ducklake_view_column_tag") == []
    for row in found["ducklake_metadata"]:
        if row["key"] == "version":
            assert row["value"] == "1.1"
            row["value"] = "1.0"
    return found


def _without(row: Row, table: str) -> Row:
    if table.startswith("ducklake_inlined_data_") and table != "ducklake_inlined_data_tables":
        return {name.removeprefix(SYSTEM): value for name, value in row.items()}
    assert set(APPENDED.get(table, ())) <= row.keys()
    return {name: value for name, value in row.items() if name not in APPENDED.get(table, ())}
