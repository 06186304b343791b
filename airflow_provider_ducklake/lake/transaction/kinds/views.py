"""Views."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from airflow_provider_ducklake.lake.transaction.conflicts import Claim, Operation, claim_of_new, claim_on
from airflow_provider_ducklake.lake.transaction.declared import Declared, Stage, check_name
from airflow_provider_ducklake.lake.transaction.facts import Needs

if TYPE_CHECKING:
    from airflow_provider_ducklake.lake.spec.names.identifiers import QualifiedName
    from airflow_provider_ducklake.lake.spec.snapshots import ViewId
    from airflow_provider_ducklake.lake.spec.tags import ViewDefinition
    from airflow_provider_ducklake.lake.transaction.declared import NewViewRef, SchemaRef, ViewRef
    from airflow_provider_ducklake.lake.transaction.facts import LockedFacts


@dataclass(frozen=True, slots=True)
class CreateView(Declared):
    """A new view, or with its ``view_id`` one that comes back."""

    ref: NewViewRef
    schema: SchemaRef
    name: QualifiedName
    uuid: str
    definition: ViewDefinition
    view_id: ViewId | None = None

    stage: ClassVar[Stage] = Stage.DEFINE

    @property
    def claim(self) -> Claim:
        return claim_of_new(self.name, self.schema)


@dataclass(frozen=True, slots=True)
class DropView(Declared):
    """The end of a view and its comment."""

    view_id: ViewId
    name: QualifiedName

    stage: ClassVar[Stage] = Stage.DROP

    @property
    def claim(self) -> Claim:
        return Claim(Operation.DROP_VIEW, self.name, self.view_id)

    @property
    def needs(self) -> Needs:
        return Needs(view_names=(self.view_id,))

    def check(self, facts: LockedFacts) -> None:
        check_name(self.view_id, self.name, facts)


@dataclass(frozen=True, slots=True)
class RenameView(Declared):
    """Another name for a view, in the same schema.

    ``commented`` are the columns that the same transaction gives another comment.
    """

    view_id: ViewId
    name: QualifiedName
    new_name: QualifiedName
    commented: tuple[str, ...] = ()

    stage: ClassVar[Stage] = Stage.DEFINE

    @property
    def claim(self) -> Claim:
        return Claim(Operation.RENAME_VIEW, self.name, self.view_id, creates=self.new_name)

    @property
    def needs(self) -> Needs:
        return Needs(view_names=(self.view_id,))

    def check(self, facts: LockedFacts) -> None:
        check_name(self.view_id, self.name, facts)


@dataclass(frozen=True, slots=True)
class CommentOnView(Declared):
    """The comment of a view; None takes it away."""

    view: ViewRef
    name: QualifiedName
    text: str | None

    stage: ClassVar[Stage] = Stage.COMMENT

    @property
    def claim(self) -> Claim | None:
        return claim_on(Operation.ALTER_VIEW, self.view, self.name)


@dataclass(frozen=True, slots=True)
class CommentOnViewColumn(Declared):
    """The comment of a view's column; None takes it away. ``column`` is its name in the query."""

    view: ViewRef
    name: QualifiedName
    column: str
    text: str | None

    stage: ClassVar[Stage] = Stage.COMMENT

    @property
    def claim(self) -> Claim | None:
        return claim_on(Operation.ALTER_VIEW, self.view, self.name)
