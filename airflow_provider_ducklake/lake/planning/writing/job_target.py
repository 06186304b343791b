"""What the files of a job are for, as recorded in the catalog before the job writes.

A job's documents lie where others may write too. So whoever takes its files says what it takes them for, and
the catalog's note has to say the same: a staged write, a batch of a stream, a compaction, or a plain write.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider_ducklake.lake.spec.names.paths import path_key

if TYPE_CHECKING:
    from airflow_provider_ducklake.lake.spec.snapshots import TableSnapshot


@dataclass(frozen=True, slots=True)
class JobTarget:
    """The table that a job's files are for (None: it is not there yet, or there are several), and its root.

    ``digest`` is that of everything else that counts: the kind of the job and, by kind, the rest of what its
    documents say of the table, or the stream.
    """

    table_id: int | None
    root: str
    digest: str


def target_of_stream(table: TableSnapshot, checkpoint: str) -> JobTarget:
    """Return what a job stages batches for: the table may be renamed, the checkpoint be spelled otherwise."""
    return _of_table(table, {"kind": "stream", "checkpoint": path_key(checkpoint)})


def target_of_compaction(table: TableSnapshot) -> JobTarget:
    """Return what a job compacts files for."""
    return _of_table(table, {"kind": "compaction"})


def target_of_write(directory: str) -> JobTarget:
    """Return what a job writes for whose task commits the files itself: nobody else takes them."""
    return JobTarget(None, directory, digest({"kind": "write"}))


def _of_table(table: TableSnapshot, more: dict[str, str]) -> JobTarget:
    return JobTarget(table.table_id, table.root, digest({"uuid": table.table_uuid, **more}))


def digest(document: Any) -> str:  # noqa: ANN401 - JSON
    """Return what tells a document from every other, however it is written."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
