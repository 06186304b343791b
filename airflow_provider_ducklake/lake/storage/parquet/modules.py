"""Modules of encrypted Parquet files: each a length, a nonce, AES-GCM's ciphertext and its tag.

DuckDB binds no module to its place: what AES-GCM calls additional data is empty. The standard has a file's
own bytes there, and the place. We read both, and write as DuckDB does, which cannot always read the other.
*Source:* Apache Parquet, "Parquet Modular Encryption"; the reference's files (docs/sources.md, encryption).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.errors import StorageError, UnsupportedFeatureError

if TYPE_CHECKING:
    from typing import Any

    from airflow_provider_ducklake.lake.spec.files import FileKey
    from airflow_provider_ducklake.lake.storage.parquet.thrift import Struct

_LENGTH_BYTES, _NONCE_BYTES, _TAG_BYTES = 4, 12, 16
OVERHEAD = _LENGTH_BYTES + _NONCE_BYTES + _TAG_BYTES
# Of FileCryptoMetaData and what is in it.
_ALGORITHM, _GCM, _GCM_CTR, _AAD_PREFIX, _AAD_FILE, _AAD_IS_SUPPLIED = 1, 1, 2, 1, 2, 3


class Module(IntEnum):
    """What a module is, as the standard numbers it."""

    FOOTER = 0
    DATA_PAGE = 2
    DICTIONARY_PAGE = 3
    DATA_PAGE_HEADER = 4
    DICTIONARY_PAGE_HEADER = 5


class Cipher:
    """Opens and seals the modules of one file; ``where`` is its path, for messages."""

    def __init__(self, key: FileKey, where: str) -> None:
        self._where = where
        try:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - an extra brings it
        except ImportError:
            raise StorageError(
                f"{where} is encrypted, and the package cryptography is not installed where this runs. "
                "Install airflow-provider-ducklake-spark[encryption] there."
            ) from None
        try:
            self._aes: Any = AESGCM(key.raw)
        except ValueError as error:
            raise StorageError(f"Cannot open {where}: {error}.") from None

    def opened(self, data: memoryview, start: int, additional: bytes = b"") -> tuple[bytes, int]:
        """Return what the module at ``start`` holds, and where it ends.

        Raises:
            StorageError: it is cut off, changed, or sealed with another key.
        """
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - as above

        body = start + _LENGTH_BYTES
        length = int.from_bytes(data[start:body], "little")
        end = body + length
        if not length >= _NONCE_BYTES + _TAG_BYTES or end > len(data):
            raise StorageError(f"{self._where} is damaged: an encrypted module is cut off.")
        nonce = data[body : body + _NONCE_BYTES]
        try:
            return self._aes.decrypt(nonce, data[body + _NONCE_BYTES : end], additional), end
        except InvalidTag:
            raise StorageError(
                f"{self._where} cannot be decrypted: it was changed, or the catalog has another key for it."
            ) from None

    def sealed(self, plain: bytes | memoryview) -> bytes:
        """Return the module that holds ``plain``, as DuckDB writes it."""
        nonce = os.urandom(_NONCE_BYTES)
        sealed: bytes = self._aes.encrypt(nonce, plain, None)
        return (len(sealed) + _NONCE_BYTES).to_bytes(_LENGTH_BYTES, "little") + nonce + sealed


@dataclass(frozen=True, slots=True)
class Additional:
    """The additional data of a file's modules; ``file`` is empty where there is none, as DuckDB writes."""

    file: bytes = b""

    @classmethod
    def of(cls, crypto: Struct, where: str) -> Additional:
        """Return that of a file, by its FileCryptoMetaData.

        Raises:
            UnsupportedFeatureError: another algorithm, or additional data that lie elsewhere.
        """
        algorithm = crypto[_ALGORITHM].value if _ALGORITHM in crypto else {}
        if not isinstance(algorithm, dict) or _GCM not in algorithm:
            name = "AES_GCM_CTR_V1" if _GCM_CTR in algorithm else "an unknown algorithm"
            raise UnsupportedFeatureError(
                f"{where} is encrypted with {name}; DuckLake's clients, and this release, read AES_GCM_V1."
            )
        gcm: Struct = algorithm[_GCM].value
        if _AAD_IS_SUPPLIED in gcm and gcm[_AAD_IS_SUPPLIED].value:
            raise UnsupportedFeatureError(
                f"{where} is encrypted with an AAD prefix that is stored elsewhere, which a lake cannot keep."
            )
        parts = [gcm[number].value for number in (_AAD_PREFIX, _AAD_FILE) if number in gcm]
        return cls(b"".join(parts))

    def of_module(self, module: Module, *ordinals: int) -> bytes:
        """Return that of one module; ``ordinals`` are its row group's, its column's and its page's."""
        if not self.file:
            return b""
        places = b"".join((one & 0xFFFF).to_bytes(2, "little") for one in ordinals)
        return self.file + bytes([module]) + places
