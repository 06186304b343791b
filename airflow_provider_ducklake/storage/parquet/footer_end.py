"""The last bytes of a Parquet file: the length of what is before them, and which kind of file it is."""

from __future__ import annotations

from airflow_provider_ducklake.errors import StorageError, UnsupportedFeatureError

MAGIC = b"PAR1"
ENCRYPTED_MAGIC = b"PARE"
TAIL_BYTES = 8  # footer length word and magic


def footer_length(tail: bytes, where: str, *, is_encrypted: bool = False) -> int:
    """Return the length word of a file that ends with ``tail``.

    Raises:
        StorageError: these are not the last bytes of a Parquet file, or not of one that ``is_encrypted``.
        UnsupportedFeatureError: the file is encrypted, and nobody has its key.
    """
    magic = tail[-4:]
    if len(tail) < TAIL_BYTES or magic not in (MAGIC, ENCRYPTED_MAGIC):
        raise StorageError(f"{where} is not a complete Parquet file: it does not end with a footer.")
    if is_encrypted and magic == MAGIC:
        raise StorageError(
            f"{where} is not encrypted, although its lake is. DuckLake's clients refuse it, too; somebody "
            "may have put it in the place of another file."
        )
    if not is_encrypted and magic == ENCRYPTED_MAGIC:
        raise UnsupportedFeatureError(f"{where} is an encrypted Parquet file, and no lake has a key for it.")
    return int.from_bytes(tail[-TAIL_BYTES:-4], "little")
