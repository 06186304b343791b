"""Consumers of tables' changes, and what each has consumed."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.errors import InvalidInputError
from airflow_provider_ducklake.lake.spec.names.identifiers import is_storable

if TYPE_CHECKING:
    from airflow_provider_ducklake.lake.spec.ids import SnapshotId, TableId


@dataclass(frozen=True, slots=True)
class Consumer:
    """A name under which changes are consumed; ``namespace`` keeps two Airflows apart."""

    name: str
    namespace: str = ""

    def __post_init__(self) -> None:
        """Refuse a name that cannot be stored."""
        if not self.name or not is_storable(self.name):
            raise InvalidInputError(
                f"consumer={self.name!r}: a consumer's name has at least one character, no NUL and no "
                "unpaired surrogate."
            )

    @property
    def digest(self) -> str:
        """SHA-256 of namespace and name, 64 hexadecimal digits: the key in the catalog."""
        text = json.dumps([self.namespace, self.name], ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Consumption:
    """The changes of a table that were consumed at once: those after one snapshot, up to another.

    ``after`` None: all that the table held at ``upto``. ``commit_key`` is the digest of the commit that
    did it, of that ``generation``.
    """

    table_id: TableId
    after: SnapshotId | None
    upto: SnapshotId
    commit_key: str
    generation: int
