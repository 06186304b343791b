"""Verify a lake: first that its catalog is consistent, then that its files match it."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.catalog.snapshot import read_snapshots
from airflow_provider_ducklake.lake.catalog.snapshot.scan import find_table
from airflow_provider_ducklake.lake.catalog.verify.contents import Contents, check_contents
from airflow_provider_ducklake.lake.catalog.verify.definitions import (
    Columns,
    check_columns,
    check_definitions,
    missing_values,
)
from airflow_provider_ducklake.lake.catalog.verify.files import check_file_rows, check_paths, misleading_paths
from airflow_provider_ducklake.lake.catalog.verify.history import (
    check_counters,
    check_lifetimes,
    check_single,
    check_snapshots,
    check_tags,
)
from airflow_provider_ducklake.lake.catalog.verify.inlined import check_inlined, check_inlined_statistics
from airflow_provider_ducklake.lake.catalog.verify.look import check_schema_circles, look_at
from airflow_provider_ducklake.lake.catalog.verify.row_ids import (
    check_live_row_ids,
    check_row_ids,
    numbered_twice,
)
from airflow_provider_ducklake.lake.catalog.verify.statistics import Known, check_statistics, note_partitions
from airflow_provider_ducklake.lake.errors import InvalidInputError
from airflow_provider_ducklake.lake.spec.log_lines import logger
from airflow_provider_ducklake.lake.spec.names.identifiers import QualifiedName

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from sqlalchemy import Connection

    from airflow_provider_ducklake.lake.catalog.dialects.dialect import Catalog
    from airflow_provider_ducklake.lake.catalog.verify.contents import Locate, Reading
    from airflow_provider_ducklake.lake.catalog.verify.look import Look
    from airflow_provider_ducklake.lake.planning.upkeep.findings import Finding
    from airflow_provider_ducklake.lake.spec.names.identifiers import TableName

log = logger(__name__)


def verify(  # noqa: PLR0913 - three say what, three how
    catalog: Catalog,
    reading: Reading,
    locate: Locate,
    *,
    tables: Collection[TableName] | None,
    sample: float,
    with_notes: bool,
) -> list[Finding]:
    """Return what is wrong with a lake, or with those tables; see ``Lake.verify``."""
    if not 0 <= sample <= 1:
        raise InvalidInputError(f"sample is {sample}; give the fraction of files to open, from 0 to 1.")
    with reading() as connection:
        read_snapshots.check_version(connection, catalog.tables)
        if missing := list(missing_values(connection, catalog)):
            return missing  # rows with a hole cannot be read, and the rest would go by them
        if circles := list(check_schema_circles(connection, catalog.tables)):
            return circles  # no table has a name
        only = table_ids(connection, catalog, tables)
        look = look_at(connection, catalog, only)
        if misleading := list(misleading_paths(look)):
            return misleading  # what lies there is not to be opened, and the rest would go by it
        columns = Columns(look)
        found = list(_in_catalog(look, columns, with_notes=with_notes))
        contents, numbered = Contents.of(look, columns), numbered_twice(look)
    log.info("Verified the catalog as of snapshot %d: %d findings", look.head.id, len(found))
    if sample > 0:
        found += check_row_ids(numbered, locate)
        found += check_contents(contents, reading, locate, sample)
    if sample == 1:  # a share of the files cannot tell
        found += [*check_live_row_ids(catalog, reading, locate, only, found)]
    log.info("Verified the files: %d findings in all", len(found))
    return found


def table_ids(
    connection: Connection, catalog: Catalog, tables: Collection[TableName] | None
) -> frozenset[int] | None:
    """Return the ids of tables by their names; None of all."""
    if tables is None:
        return None
    head = read_snapshots.head(connection, catalog.tables)
    return frozenset(find_table(connection, catalog.tables, head, QualifiedName.of(one)).id for one in tables)


def _in_catalog(look: Look, columns: Columns, *, with_notes: bool) -> Iterator[Finding]:
    known = Known(look, columns)
    return chain(
        chain(check_snapshots(look), check_counters(look), check_tags(look)) if look.is_whole else (),
        check_lifetimes(look),
        check_single(look),
        check_columns(look) if look.is_whole else (),
        check_definitions(look),
        check_file_rows(look),
        check_paths(look, with_notes=with_notes),
        note_partitions(look) if with_notes else (),
        check_statistics(look, known),
        check_inlined(look, columns),
        check_inlined_statistics(look, known),
    )
