"""The end of a Parquet file: its last bytes, and how many rows its footer says that it has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_ducklake.lake.errors import StorageError, UnsupportedFeatureError

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

MAGIC = b"PAR1"
ENCRYPTED_MAGIC = b"PARE"
TAIL_BYTES = 8  # footer length word and magic
READ_AHEAD_BYTES = (
    2**16
)  # at once from a store: as many as Arrow's reader asks for first, so that a cache helps
_MOST_BYTES = 2**29  # of a footer


def footer_length(tail: bytes, where: str, *, is_encrypted: bool = False) -> int:
    """Return the length word of a file that ends with ``tail``.

    Raises:
        StorageError: these are not the last bytes of a Parquet file, or not of one that ``is_encrypted``; or
            the footer is longer than any that is read.
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
    length = int.from_bytes(tail[-TAIL_BYTES:-4], "little")
    if length > _MOST_BYTES:
        raise StorageError(
            f"{where} is damaged: its footer is to have {length} bytes, and one has {_MOST_BYTES} at most."
        )
    return length


_SIGNATURE_BYTES = 28  # of a plain footer behind encrypted columns: nonce and tag


def refuse_encrypted_columns(metadata: pq.FileMetaData, source: pa.NativeFile, where: str) -> None:
    """Refuse a file whose columns are encrypted though its footer is not.

    pyarrow does not say so, and ends the process when it is asked for such a column.

    Raises:
        UnsupportedFeatureError: its footer is signed, as that of such a file is.
    """
    tail = source.read_at(TAIL_BYTES, max(0, source.size() - TAIL_BYTES))
    if footer_length(tail, where) - metadata.serialized_size == _SIGNATURE_BYTES:
        raise UnsupportedFeatureError(
            f"{where} has encrypted columns behind a plain footer, and no lake has a key for them."
        )


def check_row_counts(metadata: pq.FileMetaData, where: str, most: int | None = None) -> None:
    """Refuse a footer whose numbers of rows do not add up, or that has more than ``most`` rows.

    Raises:
        StorageError: names ``where`` and the numbers.
    """
    counts = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    if min(counts, default=0) < 0 or sum(counts) != metadata.num_rows:
        raise StorageError(
            f"{where} is damaged: its footer says {metadata.num_rows} rows, and its row groups {sum(counts)}."
        )
    if most is not None and metadata.num_rows > most:
        raise StorageError(f"{where} is damaged: it has {metadata.num_rows} rows, and may have {most}.")
