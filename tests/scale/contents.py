"""What a catalog can be filled with: snapshots, data files, tables with columns.

A table to be filled has a row already, so that its statistics are there. Ids of rows are the values of its
first column, an `int64`; the second is a `varchar`, all others are `int64` as well.
"""

from sqlalchemy import Row

from tests.scale.fill import Filling

ROWS_PER_FILE = 10
SCHEMAS = tuple(f"s{number}" for number in range(10))  # what `add_tables` needs
_PER_COMMIT = 1000  # files or tables that one snapshot adds


def add_snapshots(filling: Filling, table_id: int, count: int) -> None:
    """Add snapshots that inserted a row each, or deleted one, in files that became one since."""
    head = filling.add_snapshots(count, file_ids=1)
    first = head.snapshot_id + 1
    filling.run(_INSERTED_OR_DELETED, first=first, last=head.snapshot_id + count, table=table_id)
    values = _values(filling, head, table_id, 1, rows=count)
    filling.run(_FILES, **values, per=1)
    filling.run(_FILE_STATS, **values)
    filling.run(_PARTIAL, file=head.next_file_id, last=head.snapshot_id + count)
    _widen(filling, table_id, values)


def add_files(
    filling: Filling, table_id: int, count: int, per_snapshot: int = _PER_COMMIT, rows: int = ROWS_PER_FILE
) -> None:
    """Add data files to a table."""
    per = min(count, per_snapshot)
    snapshots = -(-count // per)
    head = filling.add_snapshots(snapshots, file_ids=per)
    filling.run(_INSERTED, first=head.snapshot_id + 1, last=head.snapshot_id + snapshots, table=table_id)
    values = _values(filling, head, table_id, count, rows)
    filling.run(_FILES, **values, per=per)
    filling.run(_FILE_STATS, **values)
    _widen(filling, table_id, values)


def add_deletes(filling: Filling, table_id: int, every: int) -> None:
    """Delete a row of one in so many data files of a table that have several."""
    count = filling.one(_DELETABLE, table=table_id, every=every)[0]
    per = min(count, _PER_COMMIT)
    snapshots = -(-count // per) if count else 0
    head = filling.add_snapshots(snapshots, file_ids=per)
    filling.run(_DELETED, first=head.snapshot_id + 1, last=head.snapshot_id + snapshots, table=table_id)
    filling.run(_DELETES, table=table_id, every=every, base=head.snapshot_id, file=head.next_file_id, per=per)


def add_scheduled(filling: Filling, count: int) -> None:
    """Schedule files for deletion that a compaction replaced."""
    head = filling.add_snapshots(1, file_ids=count)
    filling.run(_COMPACTED, id=head.snapshot_id + 1)
    filling.run(_SCHEDULED, first=1, last=count, id=head.snapshot_id, file=head.next_file_id)


def add_commit_keys(filling: Filling, table_id: int, count: int) -> None:
    """Note keys of the newest commits, in the table that the provider keeps them in."""
    head = filling.head()
    filling.run(_COMMIT_KEYS, first=head.snapshot_id - count + 1, last=head.snapshot_id, table=table_id)


def add_tables(filling: Filling, count: int, columns: int) -> None:
    """Add tables of a data file each, spread over `SCHEMAS`."""
    schemas = filling.one("SELECT min(schema_id) AS first FROM ducklake_schema WHERE schema_name = 's0'")
    per = min(count, _PER_COMMIT)
    head = filling.add_snapshots(-(-count // per), catalog_ids=per, file_ids=per)
    values = {
        "first": 1,
        "last": count,
        "per": per,
        "base": head.snapshot_id,
        "schema": head.schema_version,
        "schemas": schemas.first,
        "catalog": head.next_catalog_id - 1,
        "file": head.next_file_id - 1,
        "columns": columns,
        "rows": ROWS_PER_FILE,
        "last_row": str(ROWS_PER_FILE - 1),
    }
    for statement in _TABLES:
        filling.run(statement, **values)


def _values(filling: Filling, head: Row, table_id: int, count: int, rows: int) -> dict[str, object]:
    """Return the parameters of statements that add files, after what the table had."""
    stats = filling.one("SELECT * FROM ducklake_table_stats WHERE table_id = :table", table=table_id)
    return {
        "first": 1,
        "last": count,
        "rows": rows,
        "base": head.snapshot_id,
        "file": head.next_file_id - 1,
        "row": stats.next_row_id,
        "table": table_id,
    }


def _widen(filling: Filling, table_id: int, values: dict[str, object]) -> None:
    """Let the table's statistics cover the files added."""
    added = values["last"] * values["rows"]
    last = values["row"] + added - 1
    filling.run(_TABLE_STATS, table=table_id, files=values["last"], added=added)
    filling.run(_TABLE_COLUMN_STATS, table=table_id, id=str(last), name=f"n{last:012}")


_NAME = "'n' || substr(CAST(1000000000000 + {} AS varchar(13)), 2)"
_INSERTED = """INSERT INTO ducklake_snapshot_changes
    SELECT n, 'inserted_into_table:' || :table, NULL, NULL, NULL FROM {numbers}"""
_INSERTED_OR_DELETED = """INSERT INTO ducklake_snapshot_changes
    SELECT n, CASE n % 10 WHEN 0 THEN 'deleted_from_table:' ELSE 'inserted_into_table:' END || :table,
        NULL, NULL, NULL
    FROM {numbers}"""
_DELETED = """INSERT INTO ducklake_snapshot_changes
    SELECT n, 'deleted_from_table:' || :table, NULL, NULL, NULL FROM {numbers}"""
_FILES = """INSERT INTO ducklake_data_file (data_file_id, table_id, begin_snapshot, path, path_is_relative,
        file_format, record_count, file_size_bytes, footer_size, row_id_start)
    SELECT :file + n, :table, :base + 1 + (n - 1) / :per, 'made-' || n || '-' || (:file + n) || '.parquet',
        {true}, 'parquet', :rows, 500, 200, :row + (n - 1) * :rows
    FROM {numbers}"""
_FILE_STATS = f"""INSERT INTO ducklake_file_column_stats (data_file_id, table_id, column_id,
        column_size_bytes, value_count, null_count, min_value, max_value)
    SELECT file, :table, column_id, 40, :rows, 0,
        CASE column_order WHEN 1 THEN CAST(start AS varchar(20)) WHEN 2 THEN {_NAME.format("start")}
            ELSE '1' END,
        CASE column_order WHEN 1 THEN CAST(start + :rows - 1 AS varchar(20))
            WHEN 2 THEN {_NAME.format("(start + :rows - 1)")} ELSE '9' END
    FROM (SELECT :file + n AS file, :row + (n - 1) * :rows AS start FROM {{numbers}}) AS files
    CROSS JOIN ducklake_column
    WHERE table_id = :table AND end_snapshot IS NULL"""
_PARTIAL = "UPDATE ducklake_data_file SET partial_max = :last WHERE data_file_id = :file"
_TABLE_STATS = """UPDATE ducklake_table_stats SET record_count = record_count + :added,
        next_row_id = next_row_id + :added, file_size_bytes = file_size_bytes + 500 * :files
    WHERE table_id = :table"""
_TABLE_COLUMN_STATS = """UPDATE ducklake_table_column_stats
    SET max_value = CASE column_id WHEN 1 THEN :id WHEN 2 THEN :name ELSE '9' END WHERE table_id = :table"""

_OF_SEVERAL_ROWS = (
    "FROM ducklake_data_file WHERE table_id = :table AND record_count > 1 AND partial_max IS NULL"
)
_DELETABLE = f"SELECT count(*) / :every {_OF_SEVERAL_ROWS}"
_DELETES = f"""INSERT INTO ducklake_delete_file (delete_file_id, table_id, begin_snapshot, data_file_id, path,
        path_is_relative, format, delete_count, file_size_bytes, footer_size)
    SELECT :file + k - 1, :table, :base + 1 + (k - 1) / :per, data_file_id, 'made-' || k || '-delete.parquet',
        {{true}}, 'parquet', 1, 400, 200
    FROM (SELECT data_file_id, n / :every AS k, n
          FROM (SELECT data_file_id, row_number() OVER (ORDER BY data_file_id) AS n {_OF_SEVERAL_ROWS}) AS f
         ) AS deleted
    WHERE n - :every * k = 0"""

_COMPACTED = "INSERT INTO ducklake_snapshot_changes VALUES (:id, 'compacted_table:1', NULL, NULL, NULL)"
_SCHEDULED = """INSERT INTO ducklake_files_scheduled_for_deletion
    SELECT :file + n - 1, 'main/t/old-' || n || '.parquet', {true}, {time}
    FROM (SELECT n, :id AS id FROM {numbers}) AS old"""
_COMMIT_KEYS = """INSERT INTO airflow_ducklake_commit
    SELECT {digest}, 1, :table, id, id, 1, {time} FROM (SELECT n AS id, n FROM {numbers}) AS commits"""

_TABLE_NAME = "'t' || substr(CAST(1000000000 + :catalog + n AS varchar(10)), 2)"
_COLUMN_NAME = "CASE c WHEN 1 THEN 'id' WHEN 2 THEN 'name' ELSE 'c' || c END"
_TABLES = (
    f"""INSERT INTO ducklake_snapshot_changes
        SELECT id, {{joined}}, NULL, NULL, NULL
        FROM (SELECT :base + 1 + (n - 1) / :per AS id, n, 'created_table:"s' || (n % 10) || '"."'
                || {_TABLE_NAME} || '",inserted_into_table:' || (:catalog + n) AS change
              FROM {{numbers}}) AS changes
        GROUP BY id""",
    f"""INSERT INTO ducklake_table (table_id, table_uuid, begin_snapshot, schema_id, table_name, path,
            path_is_relative)
        SELECT :catalog + n, {{uuid}}, :base + 1 + (n - 1) / :per, :schemas + n % 10, {_TABLE_NAME},
            {_TABLE_NAME} || '/', {{true}}
        FROM {{numbers}}""",
    """INSERT INTO ducklake_schema_versions (begin_snapshot, schema_version, table_id)
        SELECT :base + 1 + (n - 1) / :per, :schema + 1 + (n - 1) / :per, :catalog + n FROM {numbers}""",
    f"""INSERT INTO ducklake_column (column_id, begin_snapshot, table_id, column_order, column_name,
            column_type, default_value, nulls_allowed, default_value_type, default_value_dialect)
        SELECT c, :base + 1 + (n - 1) / :per, :catalog + n, c, {_COLUMN_NAME},
            CASE c WHEN 2 THEN 'varchar' ELSE 'int64' END, 'NULL', {{true}}, 'literal', 'duckdb'
        FROM {{numbers}} CROSS JOIN {{columns}}""",
    """INSERT INTO ducklake_data_file (data_file_id, table_id, begin_snapshot, path, path_is_relative,
            file_format, record_count, file_size_bytes, footer_size, row_id_start)
        SELECT :file + n, :catalog + n, :base + 1 + (n - 1) / :per, 'made-' || n || '.parquet', {true},
            'parquet', :rows, 500, 200, 0
        FROM {numbers}""",
    """INSERT INTO ducklake_table_stats SELECT :catalog + n, :rows, :rows, 500 FROM {numbers}""",
    """INSERT INTO ducklake_table_column_stats (table_id, column_id, contains_null, min_value, max_value)
        SELECT :catalog + n, c, {false}, CASE c WHEN 2 THEN 'a' ELSE '0' END,
            CASE c WHEN 2 THEN 'z' ELSE :last_row END
        FROM {numbers} CROSS JOIN {columns}""",
    """INSERT INTO ducklake_file_column_stats (data_file_id, table_id, column_id, column_size_bytes,
            value_count, null_count, min_value, max_value)
        SELECT :file + n, :catalog + n, c, 40, :rows, 0, CASE c WHEN 2 THEN 'a' ELSE '0' END,
            CASE c WHEN 2 THEN 'z' ELSE :last_row END
        FROM {numbers} CROSS JOIN {columns}""",
)
