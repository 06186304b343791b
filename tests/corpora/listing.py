"""The list of public files: where each is from, and what of it is known; no file is in the repository."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_HERE = Path(__file__).parent


@dataclass(frozen=True)
class PublicFile:
    """A file of a project: ``version`` is a commit, or the package that ships it."""

    project: str
    version: str
    path: str
    sha256: str
    licence: str


@cache
def public_files() -> tuple[PublicFile, ...]:
    """Read the list."""
    return tuple(PublicFile(*row) for row in _rows("public_files.tsv"))


def listed(sha256: str) -> str:
    """Return the project and path of a file on the list; empty: it is not on it."""
    return _by_digest().get(sha256, "")


@cache
def _by_digest() -> Mapping[str, str]:
    return {one.sha256: f"{one.project} {one.path}" for one in public_files()}


def _rows(name: str) -> list[list[str]]:
    _, *lines = (_HERE / name).read_text().splitlines()
    return [line.split("\t") for line in lines]


# Failures that are none of ours, by the file's digest and the door.
KNOWN: Mapping[tuple[str, str], str] = {(sha256, door): why for sha256, door, why in _rows("known.tsv")}
