"""Add the data files of an Iceberg or Delta table to a table without moving them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from ..hooks.ducklake import DuckLakeHook
from ..hooks.events import announce, declare
from ..hooks.task import CommitIdentity, commit_identity, no_retry_on_user_errors
from ..lake.errors import InvalidInputError
from ..lake.format.names.identifiers import QualifiedName
from .base import DuckLakeOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from ..hooks.lineage import Flow
    from ..lake.catalog.lake import Lake
    from ..lake.format.files import DataFile
    from ..lake.format.snapshots import CommittedSnapshot


class DuckLakeAddTableOperator(DuckLakeOperator):
    """Add the data files of an Iceberg or Delta table to a table as one snapshot, without copying them.

    **The files belong to the lake from then on: compaction and clean-up delete them**, and the other table
    breaks. Do not go on writing to it, and do not let it be vacuumed or expired.

    Rows that the other table has deleted stay deleted, by delete files in the table's directory. What cannot
    be carried over is named in an error, before anything is written. Needs the extra ``iceberg`` or
    ``delta``.

    :param table: the table. (templated)
    :param source: the folder of the other table; of an Iceberg table also the path of a metadata file, or
        with ``catalog`` its name there. (templated)
    :param format: ``"iceberg"`` or ``"delta"``.
    :param snapshot_id: the snapshot of an Iceberg table; default: the current one. (templated)
    :param version: the version of a Delta table; default: the newest. (templated)
    :param create_table: a table that does not exist is created, with the columns of the other table and those
        of its partition keys that DuckLake has.
    :param catalog: the properties of a pyiceberg catalog that has the Iceberg table. (templated)
    :param storage_options: options of deltalake's for the store, beside those of the lake's connection.
        (templated)
    :param allowed_paths: further folders in which files of the other table may lie. (templated)
    :param ducklake_conn_id: the connection of the lake. (templated)
    :param message: the commit message of the snapshot; default: the ids of the DAG and the task.
        (templated)
    :return: ``{"table": "main.orders", "snapshot_id": 7, "rows_added": 3, "files_added": 1,
        "bytes_added": 700, "already_committed": False}``; ``snapshot_id`` is None if no file has rows. If an
        earlier try of the task made the snapshot, ``already_committed`` is true, and the counts are None.
    """

    template_fields: Sequence[str] = (
        "table",
        "source",
        "snapshot_id",
        "version",
        "catalog",
        "storage_options",
        "allowed_paths",
        *DuckLakeOperator.template_fields,
    )

    def __init__(
        self,
        *,
        table: str,
        source: str,
        format: Literal["iceberg", "delta"],  # noqa: A002 - what it is called
        snapshot_id: int | str | None = None,
        version: int | str | None = None,
        create_table: bool = False,
        catalog: Mapping[str, str] | None = None,
        storage_options: Mapping[str, str] | None = None,
        allowed_paths: Sequence[str] = (),
        **kwargs: Any,  # noqa: ANN401 - Airflow's
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        declare(self, table)
        self.source = source
        self.format = format
        self.snapshot_id = snapshot_id
        self.version = version
        self.create_table = create_table
        self.catalog = catalog
        self.storage_options = storage_options
        self.allowed_paths = allowed_paths

    def flow(self) -> Flow:
        """Collect what the task reads and writes, for OpenLineage."""
        from ..hooks.lineage import Flow, named, reads_of

        reads = reads_of({} if self.catalog else {"0": self.source})
        return Flow(reads, writes=named(self.table))

    @no_retry_on_user_errors()
    def execute(self, context: Context) -> dict[str, Any]:
        """Add the files, or return the commit of an earlier try."""
        chosen = {
            "snapshot_id": _number("snapshot_id", self.snapshot_id),
            "version": _number("version", self.version),
            "catalog": _texts("catalog", self.catalog),
            "storage_options": _texts("storage_options", self.storage_options),
            "allowed_paths": _paths(self.allowed_paths),
        }
        with DuckLakeHook(self.ducklake_conn_id, hook_lineage=False) as hook:
            identity = commit_identity(context, self, hook.settings().commit_namespace)
            lake = hook.lake()
            with identity.made_once(lake) as once:
                committed, files = self._add(lake, chosen, once)
            announce(self, context, lake, () if committed is None else (int(committed.id),))
        return self._summary(committed, files)

    def _add(
        self, lake: Lake, chosen: Mapping[str, Any], identity: CommitIdentity
    ) -> tuple[CommittedSnapshot | None, Sequence[DataFile]]:
        identity.keyed_commit(lake)  # what a deleted run of this name left behind is not this task's
        message = self.message or identity.message
        files: Sequence[DataFile] = ()
        with lake.transaction("airflow", message, identity.extra, identity.key) as tx:
            if tx.committed is None:
                files = tx.add_table(
                    self.table, self.source, self.format, create_table=self.create_table, **chosen
                )
        return tx.committed, files

    def _summary(self, committed: CommittedSnapshot | None, files: Sequence[DataFile]) -> dict[str, Any]:
        summary: dict[str, Any] = {
            "table": str(QualifiedName.of(self.table)),
            "snapshot_id": int(committed.id) if committed is not None else None,
            "rows_added": sum(file.live_count for file in files),
            "files_added": len(files),
            "bytes_added": sum(file.file_size_bytes for file in files),
            "already_committed": False,
        }
        if committed is not None and committed.is_earlier:
            self.log.info("This task has already committed snapshot %d: nothing was added.", committed.id)
            counts = dict.fromkeys(("rows_added", "files_added", "bytes_added"))
            return summary | counts | {"already_committed": True}
        if committed is None:
            self.log.info("%s has no rows: %s is unchanged, no snapshot was made.", self.source, self.table)
        else:
            self.log.info(
                "Committed snapshot %d to %s: %d rows in %d files of %s, which now belong to the lake",
                *(summary[key] for key in ("snapshot_id", "table", "rows_added", "files_added")),
                self.source,
            )
        return summary


def _number(name: str, value: object) -> int | None:
    """Return a number that a template may have made a text."""
    if value in (None, "", "None"):
        return None
    if isinstance(value, bool) or not isinstance(value, int | str) or not str(value).isdigit():
        raise InvalidInputError(f"{name} is {value!r}. Give a whole number, or leave it out.")
    return int(value)


def _texts(name: str, value: object) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(one, str) for one in (*value, *value.values())):
        raise InvalidInputError(f"{name} is not a dict of strings. Give one, or leave it out.")
    return dict(value)


def _paths(value: object) -> tuple[str, ...]:
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list | tuple) or not all(isinstance(one, str) for one in given):
        raise InvalidInputError(f"allowed_paths is {value!r}. Give a list of paths.")
    return tuple(given)
