"""Draws what two lakes of ours can be told and the reference gets wrong: many changes of a table at once."""

import random
from collections import Counter
from dataclasses import replace

from tests.differential.drawn_changes import FIRST_ONLY, KINDS, Change, Changes, Drawn
from tests.differential.drawn_lake import Table

ALTERATIONS = [name for name in KINDS if name.startswith(("add", "widen", "partition", "reset"))] + [
    *("rename table", "rename column", "rename field", "drop column", "drop field", "set sort keys"),
    *("set default, literal", "drop default", "set NOT NULL", "drop NOT NULL"),
    *("comment on table", "comment on column"),
]
APPENDS = [name for name in KINDS if name.startswith("append")]
PARTLY = [name for name in KINDS if name.startswith("delete rows")]
INLINED = {name for name in KINDS if "inlin" in name}
OPTIONS = {name for name in FIRST_ONLY if name.startswith("option")}
_BEFORE_ROWS = ("widen", "partition by", "reset partitioning", "rename table")


class FreeChanges(Changes):
    """Draws several alterations of one table in one transaction, also of one that it makes or fills.

    ``together`` counts transactions by how often they alter the same table.
    """

    sizes = (1, 2, 4, 8)

    def __init__(
        self, random_: random.Random, counts: Counter[str], together: Counter[int], *, inlining: bool
    ) -> None:
        super().__init__(random_, counts)
        self.together = together
        self.altered: list[Table] = []  # by the transaction under construction, the last one last
        self.first_only = OPTIONS
        if not inlining:
            self.kinds = [name for name in KINDS if name not in INLINED]
            self.lake.limits[None] = 0

    def transaction(self) -> list[Change]:
        self.altered = []
        changes = super().transaction()
        self.together.update(count for count in Counter(map(id, self.altered)).values() if count > 1)
        return changes

    def rows(self, *, deleted: bool = False) -> list[Change]:
        """Return the changes of a transaction that adds rows to every table, or deletes some of half."""
        kinds, sizes = self.kinds, self.sizes
        self.kinds = [name for name in (PARTLY if deleted else APPENDS) if name in kinds]
        self.sizes = (len(self.lake.tables) // (2 if deleted else 1),)
        try:
            return self.transaction()
        finally:
            self.kinds, self.sizes = kinds, sizes

    def alterable(self) -> list[Table]:
        """List the tables that may change, mostly only the one that changed last."""
        needs_no_rows = self.kind.startswith(_BEFORE_ROWS)
        tables = [one for one in self.lake.tables if not (needs_no_rows and one in self.so_far.filled)]
        newest = self.altered[-1:]
        return newest if newest and newest[0] in tables and self.random.random() < 0.8 else tables

    def may_take_id(self) -> bool:
        return True

    def _change(self, *, is_first: bool) -> Change | None:
        """Draw a change and forget what limits the reference; rows and new names still limit what follows."""
        renamed = set(self.so_far.renamed)
        change = super()._change(is_first=is_first)
        so_far = self.so_far
        done = so_far.changed | so_far.renamed - renamed
        self.altered += [one for one in done if isinstance(one, Table)]
        self.so_far = Drawn(filled=so_far.filled, shortened=so_far.shortened, renamed=so_far.renamed)
        return change and replace(change, is_alone=False)
