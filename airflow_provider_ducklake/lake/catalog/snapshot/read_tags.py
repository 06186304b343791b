"""The table of tags: which snapshots have names, and are not to expire.

Our own table beside the format's; DuckDB neither reads nor minds it, nor does its expiry.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import Column, MetaData, String, Table, select

from airflow_provider_ducklake.lake.catalog.database.column_types import (
    TABLE_OPTIONS,
    CatalogInteger,
    CatalogText,
    CatalogTimestamp,
    catalog_table,
    maybe,
)
from airflow_provider_ducklake.lake.errors import TaggedSnapshotLostError, TagNotFoundError
from airflow_provider_ducklake.lake.spec.snapshots import SnapshotId
from airflow_provider_ducklake.lake.spec.tags import LONGEST_NAME, Tag, tag_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection, Row

    from airflow_provider_ducklake.lake.catalog.dialects.opened import Catalog

NAME = "airflow_ducklake_tag"
_DIGEST_LENGTH = 64


@lru_cache
def tag_table(metadata_schema: str | None) -> Table:
    """Return the table; ``commit_key`` is that of the task which tagged."""
    return catalog_table(
        NAME,
        MetaData(schema=metadata_schema),
        Column("tag_name", String(LONGEST_NAME), primary_key=True),
        Column("snapshot_id", CatalogInteger, nullable=False),
        Column("snapshot_time", CatalogTimestamp, nullable=False),
        Column("tagged_at", CatalogTimestamp, nullable=False),
        Column("author", CatalogText),
        Column("message", CatalogText),
        Column("commit_key", String(_DIGEST_LENGTH)),
        **TABLE_OPTIONS,
    )


def tags(connection: Connection, catalog: Catalog) -> list[Tag]:
    """Return all tags, in the order of their snapshots; none where nobody ever tagged."""
    return sorted(map(_tag, _rows(connection, catalog)), key=lambda one: (one.snapshot_id, one.name))


def tags_by_snapshot(connection: Connection, catalog: Catalog) -> dict[int, tuple[str, ...]]:
    """Return the names of the tags of each tagged snapshot, whether that is there or not."""
    found: dict[int, tuple[str, ...]] = {}
    for tag in tags(connection, catalog):
        found[tag.snapshot_id] = (*found.get(tag.snapshot_id, ()), tag.name)
    return found


def find_tag(connection: Connection, catalog: Catalog, name: str) -> Tag | None:
    """Return the tag of a name, None if there is none."""
    return next(map(_tag, _rows(connection, catalog, name)), None)


def tagged_snapshot(connection: Connection, catalog: Catalog, at: str) -> SnapshotId:
    """Return the snapshot that is named by its tag: ``"tag:q3-close"``.

    Raises:
        InvalidInputError: it does not name a tag.
        TagNotFoundError: there is no such tag.
        TaggedSnapshotLostError: the snapshot has expired all the same.
    """
    name = tag_name(at)
    tag = find_tag(connection, catalog, name)
    if tag is None:
        raise TagNotFoundError(name, [one.name for one in tags(connection, catalog)])
    if tag.is_lost:
        raise TaggedSnapshotLostError(name, tag.snapshot_id, tag.snapshot_time)
    return tag.snapshot_id


def _rows(connection: Connection, catalog: Catalog, name: str | None = None) -> Sequence[Row[Any]]:
    schema = catalog.tables.metadata_schema
    if not catalog.dialect.has_table(connection, NAME, schema):
        return ()
    tag, snapshot = tag_table(schema), catalog.tables["snapshot"]
    query = select(tag, maybe(snapshot.c.snapshot_id).label("found")).outerjoin(
        snapshot, snapshot.c.snapshot_id == tag.c.snapshot_id
    )
    return connection.execute(query if name is None else query.where(tag.c.tag_name == name)).all()


def _tag(row: Row[Any]) -> Tag:
    return Tag(
        row.tag_name,
        SnapshotId(row.snapshot_id),
        row.snapshot_time,
        row.tagged_at,
        row.author,
        row.message,
        row.found is None,
    )
