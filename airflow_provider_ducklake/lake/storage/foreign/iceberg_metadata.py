"""Find an Iceberg table's newest metadata file, and read it.

*Source:* Iceberg's specification, "Metastore tables" and "File system tables".
"""

from __future__ import annotations

import re
from io import BytesIO
from typing import TYPE_CHECKING

import pyarrow.fs as pafs
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.serializers import FromByteStream
from pyiceberg.table import StaticTable

from airflow_provider_ducklake.lake.errors import (
    InvalidInputError,
    SourceNotFoundError,
    StorageError,
)
from airflow_provider_ducklake.lake.spec.names.paths import is_absolute
from airflow_provider_ducklake.lake.storage.files.filesystem import naming_errors, open_input
from airflow_provider_ducklake.lake.storage.foreign.iceberg_catalog import find_in_catalog
from airflow_provider_ducklake.lake.storage.foreign.lake_file_io import LakeFileIO, metadata_text
from airflow_provider_ducklake.lake.storage.foreign.places import Places, spelled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyiceberg.table import Table

    from airflow_provider_ducklake.lake.storage.files.filesystem import Location

    Locate = Callable[[str], Location]

_ENDING = ".metadata.json"
_VERSION = re.compile(r"v?(\d+)(?:-[^/]*)?(?:\.gz)?\.metadata\.json(?:\.gz)?")
_HINT = "version-hint.text"


def load_table(
    source: str, locate: Locate, catalog: Mapping[str, str] | None, allowed_paths: tuple[str, ...]
) -> tuple[Table, Places]:
    """Return a table by its metadata file, its folder, or its name in a catalog, and where its files may lie.

    Raises:
        InvalidInputError: the path is relative, two metadata files are the newest, or a property of the
            catalog names a class.
        SourceNotFoundError: there is no such table.
        StorageError: the catalog does not answer, or its metadata cannot be read.
    """
    location, folder = _in_catalog(source, catalog) if catalog else _in_folder(source, locate)
    places = Places.of(f"The metadata of {source}", folder, allowed_paths)
    with naming_errors(location, "read Iceberg's metadata in"):
        metadata = FromByteStream.table_metadata(
            BytesIO(metadata_text(location, open_input(locate(location))))
        )
    io = LakeFileIO(places, locate)
    return StaticTable(("table",), metadata, location, io, NoopCatalog("none")), places


def _in_catalog(source: str, properties: Mapping[str, str]) -> tuple[str, str]:
    location, folder = find_in_catalog(source, properties)
    path = spelled(location)
    return path, _folder_of(path) if folder is None else spelled(folder)


def _in_folder(source: str, locate: Locate) -> tuple[str, str]:
    path = spelled(source)
    if not is_absolute(path):
        raise InvalidInputError(f"The source {source!r} is relative; give an absolute path or a URI.")
    if path.endswith((_ENDING, f"{_ENDING}.gz")):
        return path, _folder_of(path)
    folder = path.rstrip("/")
    return _newest(folder, locate), folder


def _folder_of(metadata_file: str) -> str:
    """Return the table's folder; what the file itself says would be a folder of its writer's choice."""
    return metadata_file.rpartition("/")[0].removesuffix("/metadata")


def _newest(folder: str, locate: Locate) -> str:
    """Return the newest metadata file: that of the hint or a later one, else that of the greatest number."""
    metadata = f"{folder}/metadata"
    names = _names(metadata, locate)
    numbers: dict[int, list[str]] = {}
    for name in names:
        if (match := _VERSION.fullmatch(name)) is not None:
            numbers.setdefault(int(match[1]), []).append(name)
    if not numbers:
        raise SourceNotFoundError("the Iceberg table", f"{metadata}/*{_ENDING}")
    newest = max(numbers)
    if _HINT in names:
        newest = _after_hint(_hint(f"{metadata}/{_HINT}", locate), numbers)
    if len(numbers[newest]) > 1:
        raise InvalidInputError(
            f"{folder} has several metadata files of version {newest}: {', '.join(sorted(numbers[newest]))}. "
            "Give the one that the table's catalog names."
        )
    return f"{metadata}/{numbers[newest][0]}"


def _after_hint(hint: int, numbers: Mapping[int, list[str]]) -> int:
    """Return the version that readers of a hint take: writers may have died before they changed it."""
    if hint not in numbers:
        raise StorageError(
            f"The hint names version {hint}, which has no metadata file. Give the metadata file."
        )
    while hint + 1 in numbers:
        hint += 1
    return hint


def _names(folder: str, locate: Locate) -> list[str]:
    place = locate(folder)
    with naming_errors(folder, "list"):
        infos = place.filesystem.get_file_info(pafs.FileSelector(place.path, allow_not_found=True))
    return [info.base_name for info in infos if info.type == pafs.FileType.File]


def _hint(path: str, locate: Locate) -> int:
    with naming_errors(path, "read"), open_input(locate(path)) as source:
        text = source.read(100).decode("utf-8", "replace").strip()
    if not (text.isdecimal() and text.isascii()):
        raise StorageError(f"{path} does not hold a version but {text!a:.40}. Give the metadata file.")
    return int(text)
