"""Keys of encrypted files, as the catalog has them.

*Source:* what the reference writes and reads (docs/sources.md, encryption).
"""

from __future__ import annotations

import base64
import binascii
import secrets
from dataclasses import dataclass, field

KEY_BYTES = (16, 24, 32)  # AES-128, AES-192, AES-256


@dataclass(frozen=True, slots=True)
class FileKey:
    """The key of one encrypted file: ``text`` is the catalog's, base64; no log and no message shows it.

    Without a text it is the key that the catalog of an encrypted lake does not have.
    """

    text: str = field(repr=False)

    @classmethod
    def of_length(cls, length: int) -> FileKey:
        """Return a new random key of so many bytes."""
        return cls(base64.b64encode(secrets.token_bytes(length)).decode())

    @property
    def raw(self) -> bytes:
        """The bytes of the key.

        Raises:
            ValueError: there are none, or they are no key of AES; says which, and shows nothing of them.
        """
        if not self.text:
            raise ValueError("the catalog of this encrypted lake has no key for it")
        try:
            key = base64.b64decode(self.text, validate=True)
        except (binascii.Error, ValueError):
            raise ValueError("the key in the catalog is not base64") from None
        if len(key) not in KEY_BYTES:
            raise ValueError(f"the key in the catalog has {len(key)} bytes; AES takes 16, 24 or 32")
        return key


def key_text(key: FileKey | None) -> str | None:
    """Return what the catalog is to have for a file, None for one that is not encrypted."""
    return None if key is None else key.text
