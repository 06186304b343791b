"""Ask an Iceberg catalog for the place of a table's metadata, and ignore the rest of its answer.

pyiceberg imports and calls classes that properties name: those that a user gives, those that a REST server
answers with, and those of a table's metadata. Only the place of the metadata file is wanted here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog, infer_catalog_type, load_catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io import PY_IO_IMPL, FileIO, InputFile, OutputFile
from pyiceberg.utils.config import Config, merge_config

from ...errors import InvalidInputError, SourceNotFoundError, StorageError, UntrustedValueError
from ..files.filesystem import storage_errors

_ONLY_READ = {"init_catalog_tables": "false", "schema_version": "v0"}
_IS_FILE = {"sqlite": True, "postgresql": False, "mysql": False, "mariadb": False}  # by database


def find_in_catalog(source: str, properties: Mapping[str, Any]) -> str:
    """Return the place of a table's metadata file."""
    for key, _ in _classes(properties):
        raise InvalidInputError(
            f"The argument catalog has {key}: classes are not taken, because they would be imported and "
            "called. Leave it out."
        )
    try:
        return _asked(source, properties)
    except StorageError as error:  # of drivers, which show what they were given
        text = str(error)
        for secret in sorted(_secrets(properties), key=len, reverse=True):
            text = text.replace(secret, "***")
        raise StorageError(text) from None


_SECRET = re.compile(r"token|credential|secret|password|key|header|auth|impl", re.IGNORECASE)
_SHORTEST = 3  # characters of a word that is hidden


def _secrets(properties: Mapping[str, Any]) -> set[str]:
    """Return the words of secrets among the properties: of keys so named, and of addresses with a user."""
    texts = []
    for key, value in _pairs(properties):
        if key.lower().endswith(("uri", "url")):
            address, _, query = str(value).partition("?")
            texts += [re.sub(r"^[\w+]+://", "", address).rpartition("@")[0], query]
        elif _SECRET.search(key):
            texts.append(str(value))
    words = {word for text in texts for word in re.split(r"[\s:@/?&=;]+", text)}
    return {word for word in words if len(word) >= _SHORTEST}


def _asked(source: str, properties: Mapping[str, Any]) -> str:
    with storage_errors(f"{source} in the Iceberg catalog", "look up"):
        catalog = _opened({"name": "default", **properties})
        catalog.properties[PY_IO_IMPL] = f"{__name__}.{UnreadFileIO.__name__}"
        catalog._load_file_io = UnreadFileIO  # type: ignore[method-assign] # noqa: SLF001 - as tables say otherwise
        try:
            table = catalog.load_table(source)
        except NoSuchTableError as error:
            raise SourceNotFoundError("the Iceberg catalog", source) from error
        except _FoundError as found:
            return found.location
        return table.metadata_location


class _FoundError(Exception):
    """A catalog is about to read a table's metadata file."""

    def __init__(self, location: str) -> None:
        super().__init__(location)
        self.location = location


class UnreadFileIO(FileIO):
    """Reads no file for pyiceberg, which would by the table's own properties, and without limits."""

    def __init__(self, properties: object = None, location: str | None = None) -> None:  # noqa: ARG002 - pyiceberg's
        super().__init__()

    def new_input(self, location: str) -> InputFile:
        raise _FoundError(location)

    def new_output(self, location: str) -> OutputFile:
        raise _FoundError(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        raise _FoundError(str(location))


def _opened(properties: dict[str, Any]) -> Catalog:
    """Return the catalog; pyiceberg's own configuration on this machine may add to the properties."""
    name = properties["name"]
    configured = Config().get_catalog_config(name) or {}
    _check_places(name, configured, properties)
    known: dict[str, Any] = merge_config(configured, properties)
    kind = str(known.get("type") or "").lower() or str(getattr(infer_catalog_type(name, known), "value", ""))
    if kind == "rest" and "uri" in known:
        return _RestCatalog(**known)
    if kind == "sql":
        _check_database(str(known.get("uri")))
        properties = {**properties, **_ONLY_READ}
    return load_catalog(**properties)


def _check_places(name: str, configured: Mapping[str, Any], properties: Mapping[str, Any]) -> None:
    """Refuse another server than the one that this machine's configuration has its credentials for."""
    for key, value in _pairs(properties) if "uri" in configured else ():
        if key.lower().endswith(("uri", "endpoint")) and value != configured.get(key):
            raise InvalidInputError(
                f"The argument catalog has another {key} than the catalog {name!r} of the worker's pyiceberg "
                "configuration, whose credentials are for that one. Leave it out, or give another name."
            )


class _RestCatalog(RestCatalog):
    """A REST catalog whose server cannot choose classes, though its answer changes the properties."""

    def _create_session(self) -> Any:  # noqa: ANN401 - of requests
        for key, value in _classes(self.properties):
            problem = f"would be imported and called as a class ({key})"
            raise UntrustedValueError(f"The Iceberg catalog at {self.uri}", str(value), problem)
        return super()._create_session()


def _classes(properties: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the properties that name a class for pyiceberg to import."""
    for key, value in _pairs(properties):
        words = key.lower().replace("-", ".").split(".")
        if words[-1] == "impl" or (words[-2:] == ["auth", "type"] and "." in str(value)):
            yield key, value


def _pairs(properties: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the keys, with those above them, and the values."""
    for key, value in properties.items():
        if isinstance(value, Mapping):
            yield from _pairs(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _check_database(uri: str) -> None:
    """Refuse a file that would be made, and drivers that load or make other files."""
    scheme, colon, rest = uri.partition("://")
    backend = scheme.partition("+")[0].lower() if colon else "no scheme"
    if backend not in _IS_FILE:
        raise InvalidInputError(
            f"An Iceberg catalog in {backend!r:.20} is not supported; these are: {', '.join(_IS_FILE)}."
        )
    file = rest.partition("?")[0].removeprefix("/")
    if _IS_FILE[backend] and not Path(file).is_file():
        raise InvalidInputError(f"The Iceberg catalog {file!r} does not exist. Correct its uri.")
