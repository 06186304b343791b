"""What is synced to the disk, and when a catalog commits, in their order."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Engine, event

COMMIT = "COMMIT"


@contextmanager
def recorded(monkeypatch) -> Iterator[list[str]]:
    """Record the paths that this process syncs, and its commits, while it does both."""
    found: list[str] = []
    fsync = os.fsync

    def sync(descriptor: int) -> None:
        found.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        fsync(descriptor)

    def commit(_connection: object) -> None:
        found.append(COMMIT)

    monkeypatch.setattr(os, "fsync", sync)
    event.listen(Engine, "commit", commit)
    try:
        yield found
    finally:
        event.remove(Engine, "commit", commit)
        monkeypatch.undo()


def before_commit(events: list[str]) -> set[str]:
    """Return what was synced before the last COMMIT."""
    last = len(events) - 1 - events[::-1].index(COMMIT)
    return set(events[:last])


def needed(data_path: str, files: list[str]) -> set[str]:
    """Return what has to be on the disk for files to be there: they, and the directories that lead there."""
    top = Path(data_path).parent
    parents = {str(one) for file in files for one in Path(file).parents if top in (one, *one.parents)}
    return {*files, *parents}
