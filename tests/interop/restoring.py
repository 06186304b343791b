"""What restored lakes show, at every snapshot, and what is left of them when all else is gone."""

from airflow_provider_ducklake.lake.catalog.committing.commit import Committer
from airflow_provider_ducklake.lake.catalog.lake import Lake
from airflow_provider_ducklake.lake.format.names.identifiers import quote
from tests.interop.comparison import arrow_of, differences, multiset, tables_of
from tests.reference.duckdb_lake import open_lake


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
