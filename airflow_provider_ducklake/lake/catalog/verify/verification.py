"""Verify a lake: first that its catalog is consistent, then that its files match it."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from ...errors import InvalidInputError
from ...format.log_lines import logger
from ...format.names.identifiers import QualifiedName, TableName
from ...planning.upkeep.findings import NOTES, Finding
from ..snapshot import read_snapshots
from ..snapshot.scan import find_table
from . import definitions, files, history, inlined, statistics
from .contents import Contents, Locate, Reading, check_contents
from .row_ids import check_live_row_ids, check_row_ids, numbered_twice
from .scope import run, scope_of

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from ..dialects.dialect import Catalog

log = logger(__name__)

CHECKS = (*history.CHECKS, *definitions.CHECKS, *files.CHECKS, *statistics.CHECKS, *inlined.CHECKS)


def verify(  # noqa: PLR0913 - three say what, three how
    catalog: Catalog,
    reading: Reading,
    locate: Locate,
    *,
    tables: Collection[TableName] | None,
    sample: float,
    with_notes: bool,
) -> list[Finding]:
    """Find the defects of a lake, or of those tables; see ``Lake.verify``."""
    if not 0 <= sample <= 1:
        raise InvalidInputError(f"sample is {sample}; give the fraction of files to open, from 0 to 1.")
    with reading() as connection:
        read_snapshots.check_version(connection, catalog.tables)
        if missing := list(definitions.missing_values(connection, catalog)):
            return missing  # rows with a hole cannot be read, and the rest would go by them
        if circles := list(definitions.schemas_in_circles(connection, catalog.tables)):
            return circles  # no table has a name
        only = table_ids(connection, catalog, tables)
        scope = scope_of(connection, catalog, only)
        if misleading := list(files.misleading_paths(scope)):
            return misleading  # what lies there is not to be opened, and the rest would go by it
        found = list(run(CHECKS, scope, with_notes=with_notes))
        contents, numbered = Contents.of(scope), numbered_twice(scope)
    log.info("Verified the catalog as of snapshot %d: %d findings", scope.head.id, len(found))
    if sample > 0:
        found += check_row_ids(numbered, locate)
        in_files = check_contents(contents, reading, locate, sample)
        found += (one for one in in_files if with_notes or one.code not in NOTES)
    if sample == 1:  # a part of the files cannot show it
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
