"""pyiceberg's files, read through the lake's own file systems: with its storage options, where it may."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.fs as pafs
from pyiceberg.io import FileIO, InputFile
from pyiceberg.serializers import Compressor

from airflow_provider_ducklake.lake.errors import StorageError, UnsupportedFeatureError
from airflow_provider_ducklake.lake.storage.files.filesystem import naming_errors, open_input

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyiceberg.io import InputStream, OutputFile

    from airflow_provider_ducklake.lake.storage.files.filesystem import Location
    from airflow_provider_ducklake.lake.storage.foreign.places import Places


_MOST_BYTES = 2**28  # of a metadata file, decompressed


def metadata_text(location: str, source: InputStream) -> bytes:
    """Return the text of a metadata file, and close it; a compressed one may become a thousand times as long.

    Raises:
        StorageError: it is too long.
    """
    with source, Compressor.get_compressor(location).stream_decompressor(source) as plain:
        content: bytes = plain.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise _too_long(location)
    return content


def _too_long(location: str) -> StorageError:
    return StorageError(
        f"Cannot read Iceberg's metadata in {location}: it has more than {_MOST_BYTES} bytes, the most "
        "that is read. Expire snapshots of the table, or find out who wrote that file."
    )


class LakeInput(InputFile):
    """A file that pyiceberg reads."""

    def __init__(self, location: str, place: Location) -> None:
        super().__init__(location)
        self._place = place

    def __len__(self) -> int:
        with self.open() as stream, naming_errors(self.location, "read"):
            stream.seek(0, 2)
            return stream.tell()

    def exists(self) -> bool:
        with naming_errors(self.location, "look at"):
            info = self._place.filesystem.get_file_info(self._place.path)
        return bool(info.type == pafs.FileType.File)

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002, FBT001, FBT002 - pyiceberg's
        stream = open_input(self._place)
        with naming_errors(self.location, "read"):
            if stream.size() > _MOST_BYTES:
                stream.close()
                raise _too_long(self.location)
        opened: InputStream = stream
        return opened


class LakeFileIO(FileIO):
    """Files below given folders, by the lake's storage options; it writes and deletes none."""

    def __init__(self, places: Places, locate: Callable[[str], Location]) -> None:
        super().__init__()
        self._places = places
        self._locate = locate

    def new_input(self, location: str) -> LakeInput:
        return LakeInput(location, self._locate(self._places.checked(location)))

    def new_output(self, location: str) -> OutputFile:
        raise UnsupportedFeatureError(f"{location}: the table is only read.")

    def delete(self, location: str | InputFile | OutputFile) -> None:
        raise UnsupportedFeatureError(f"{location}: the table is only read.")
