"""What restored lakes show, at every snapshot, and what is left of them when all else is gone."""

from typing import Any

import duckdb

from airflow_provider_ducklake.lake.catalog.committing.commit import Committer
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.format.names.identifiers import QualifiedName, quote
from airflow_provider_ducklake.lake.planning.upkeep.findings import Finding, FindingCode
from tests.interop.comparison import arrow_of, differences, multiset, names_of, tables_of
from tests.reference.catalogs import CatalogDatabase
from tests.reference.duckdb_lake import DuckLakeConnection, open_lake


def newest(lake):
    return lake.current_snapshot().id


def rows_at_every_snapshot(catalog):
    """Return all rows of all tables as the reference reads them, by snapshot."""
    with open_lake(catalog) as reference:
        return {version: as_multisets(tables) for version, tables in tables_of(reference)}


def as_multisets(tables):
    return {name: None if rows is None else multiset(rows) for name, rows in tables.items()}


def assert_read_alike(lake, catalog):
    """Compare all rows at all snapshots, and return them."""
    with open_lake(catalog) as reference:
        theirs = list(tables_of(reference))
    assert [one for one in differences(lake, theirs) if one is not None] == []
    return {version: as_multisets(tables) for version, tables in theirs}


def numbered_rows(catalog, version, names):
    """Return the rows of tables with their ids, as the reference reads them."""
    with open_lake(catalog) as reference:
        return {
            name: multiset(
                arrow_of(
                    reference,
                    f"(SELECT rowid, * FROM {quote(name.schema.name)}.{quote(name.name)}"
                    f" AT (VERSION => {version}))",
                )
            )
            for name in names
        }


def forget_all_but_the_newest(catalog):
    """Let the reference expire every other snapshot and delete what only those used."""
    with open_lake(catalog) as reference:
        ids = [one for (one,) in reference.sql("SELECT snapshot_id FROM ducklake_snapshots('lake')")]
        reference.sql(f"CALL ducklake_expire_snapshots('lake', versions => {sorted(ids)[:-1]})")
        reference.sql("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")


class Interrupted(Lake):
    """A lake to which something happens between the plan of a restore and its commit."""

    meanwhile = staticmethod(lambda: None)
    afterwards = staticmethod(lambda: None)

    def __init__(self, lake):
        committer = _InterruptedCommitter(lake)
        committer.of = self
        super().__init__(lake, committer)


class _InterruptedCommitter(Committer):
    of: Interrupted

    def commit_change_sets(self, *arguments, **named):
        self.of.meanwhile()
        committed = super().commit_change_sets(*arguments, **named)
        self.of.afterwards()
        return committed


Seen = dict[tuple[QualifiedName, int], list[tuple[Any, ...]] | None]


def seen_by_the_reference(catalog: CatalogDatabase) -> Seen:
    """Return all tables at all snapshots, rows with their ids; None: it cannot read one.

    Of the catalog it does not read rows that had other fields in a struct than the table has by now.
    """
    with open_lake(catalog) as reference:
        reference.sql("SET arrow_lossless_conversion = true")
        return {
            (name, version): _rows(reference, name, version)
            for version, names in names_of(reference)
            for name in names
        }


def _rows(reference: DuckLakeConnection, name: QualifiedName, version: int) -> list[tuple[Any, ...]] | None:
    table = f"{quote(name.schema.name)}.{quote(name.name)} AT (VERSION => {version})"
    try:
        return multiset(arrow_of(reference, f"(SELECT rowid, * FROM {table})"))
    except duckdb.ConversionException as error:
        if "Failed to read inlined data" not in str(error):
            raise
        return None


def seen_by_us(lake: Lake) -> Seen:
    """Return all tables at all snapshots, rows without their ids."""
    return {
        (name, one.id): multiset(lake.read_arrow(name, at=one.id))
        for one in lake.snapshots()
        for name in lake.tables(at=one.id)
    }


def feeds(lake: Lake) -> dict[QualifiedName, list[tuple[str, ...]]]:
    """Return all changes of the tables that there are, with row ids, since the first snapshot of each."""
    snapshots = [one.id for one in lake.snapshots()]
    found = {}
    for name in lake.tables():
        since = next(one for one in snapshots if name in lake.tables(at=one))
        found[name] = multiset(lake.changes(name, since, snapshots[-1]).read_arrow())
    return found


def _is_old(finding: Finding) -> bool:
    """Whether it is about statistics that the reference's rewrites make without the rows that have ended."""
    return finding.code is FindingCode.TABLE_STATS_NARROW


def assert_flushed_without_a_trace(catalog: CatalogDatabase, **arguments: Any) -> int:
    """Flush a lake; what was to be seen before is to be seen after. Return how many tables were flushed."""
    theirs = seen_by_the_reference(catalog)
    with Lake.connect(catalog.sqlalchemy_url) as lake:
        ours, changes, findings = seen_by_us(lake), feeds(lake), lake.verify()
        flushed = lake.flush_inlined_data(**arguments)
        assert {place: rows for place, rows in seen_by_us(lake).items() if place in ours} == ours
        assert feeds(lake) == changes
        assert lake.flush_inlined_data(**arguments) == []
        assert [one for one in lake.verify() if one not in findings and not _is_old(one)] == []
    after = seen_by_the_reference(catalog)
    assert {place: after[place] for place, rows in theirs.items() if rows is not None} == {
        place: rows for place, rows in theirs.items() if rows is not None
    }
    return len(flushed)
