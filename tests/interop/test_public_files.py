"""Public Parquet files of the Apache project's collection: read as others read them, or refused by name."""

import base64
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

from airflow_provider_ducklake.errors import StorageError, UnsupportedFeatureError
from airflow_provider_ducklake.spec.encryption import FileKey
from airflow_provider_ducklake.storage.files.filesystem import open_filesystem
from airflow_provider_ducklake.storage.parquet.opening import open_parquet

FOLDER = Path(__file__).parents[3] / "shared" / "data" / "parquet-testing"
if not FOLDER.is_dir():
    pytest.skip(f"the public files are not at {FOLDER}", allow_module_level=True)

FOOTER_KEY = b"01234567890123456789012345678901"
ENCRYPTED = FOLDER / "data" / "aes256"


def decrypted(name: str, key: bytes = FOOTER_KEY) -> pa.Table:
    location = open_filesystem(str(ENCRYPTED / name)).with_key(FileKey(base64.b64encode(key).decode()))
    with open_parquet(location) as source:
        return pq.ParquetFile(source).read()


def test_a_file_that_is_encrypted_by_the_standard_is_read():
    properties = pe.create_decryption_properties(FOOTER_KEY)
    name = "uniform_encryption.parquet.encrypted"

    assert decrypted(name).equals(pq.read_table(ENCRYPTED / name, decryption_properties=properties))
    with pytest.raises(StorageError, match="the catalog has another key for it"):
        decrypted(name, b"9" * 32)


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("encrypt_columns_and_footer", UnsupportedFeatureError, "has a key of its own for column 1"),
        ("encrypt_columns_and_footer_ctr", UnsupportedFeatureError, "AES_GCM_CTR_V1"),
        ("encrypt_columns_and_footer_disable_aad_storage", UnsupportedFeatureError, "AAD prefix"),
        ("encrypt_columns_plaintext_footer", StorageError, "is not encrypted"),
    ],
)
def test_what_no_lake_holds_is_refused_by_name(name, error, words):
    with pytest.raises(error, match=words) as raised:
        decrypted(f"{name}.parquet.encrypted")

    assert name in str(raised.value)


def test_every_encrypted_file_is_spoken_of():
    assert len([*ENCRYPTED.iterdir()]) == 5
