"""Public Parquet files of the Apache project's collection: read as others read them, or refused by name."""

import base64
import json
import re
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

from airflow_provider_ducklake.lake.errors import StorageError, UnsupportedFeatureError
from airflow_provider_ducklake.lake.format.files import FileKey
from airflow_provider_ducklake.lake.format.schema import Column
from airflow_provider_ducklake.lake.format.snapshots import ColumnId
from airflow_provider_ducklake.lake.format.types.ducklake_types import parse_type
from airflow_provider_ducklake.lake.format.types.variants import decode_variant, encode_variant, split_variant
from airflow_provider_ducklake.lake.storage.files.filesystem import open_filesystem
from airflow_provider_ducklake.lake.storage.parquet.opening import open_parquet
from airflow_provider_ducklake.lake.storage.parquet.reader import in_schema

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


VARIANTS = FOLDER / "variant"
SHREDDED = FOLDER / "shredded_variant"
CASES = [case for case in json.loads((SHREDDED / "cases.json").read_text()) if "parquet_file" in case]
REFUSED = {  # what is wrong with them; of the first two, the standard lets readers choose
    43: "field 'b' is shredded, and in its value, too",
    125: "field 'b' is shredded, and in its value, too",
    87: "shredded fields, and a value that is no object",
    127: "shredded as uint32",
    137: r"shredded as fixed_size_binary\[4\]",
}


def variants_of(case: dict[str, object]) -> list[object]:
    path = SHREDDED / case["parquet_file"]
    rows = pq.read_table(path).select(["var"])
    column = Column(ColumnId(2), "var", parse_type("variant"))
    found = in_schema(rows, (column,), path.name)["var"].to_pylist()
    return [row and decode_variant(row["metadata"], row["value"]) for row in found]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['case_number']} {case['test']}")
def test_shredded_variants_are_what_others_wrote_or_refused(case):
    if words := REFUSED.get(case["case_number"]):
        with pytest.raises(UnsupportedFeatureError, match=rf"{case['parquet_file']}: column var .*{words}"):
            variants_of(case)
        return
    files = case.get("variant_files") or [case["variant_file"]]

    expected = [name and decode_variant(*split_variant((SHREDDED / name).read_bytes())) for name in files]

    found = variants_of(case)
    assert repr(found) == repr(expected)  # so that 1 is not 1.0


def test_every_shredded_file_is_spoken_of():
    assert len(CASES) == len([*SHREDDED.glob("*.parquet")]) == 68
    assert REFUSED.keys() <= {case["case_number"] for case in CASES}


@pytest.mark.parametrize("name", sorted(path.stem for path in VARIANTS.glob("*.metadata")))
def test_variants_decode_to_themselves(name):
    metadata, value = ((VARIANTS / f"{name}.{part}").read_bytes() for part in ("metadata", "value"))

    found = decode_variant(metadata, value)

    assert decode_variant(*encode_variant(found)) == found
    assert in_words(found) == dictionary().get(name, in_words(found))


def in_words(value: object) -> object:
    """Return a value as the dictionary of the public files has it, where it can say it."""
    match value:
        case dict():
            return {name: in_words(below) for name, below in value.items()}
        case list():
            return [in_words(below) for below in value]
        case bytes():
            return base64.b64encode(value).decode()
        case None | bool() | int() | str():
            return value
        case Decimal():
            return float(value)
        case _:
            return value if isinstance(value, float) else SPELLED.get(type(value), str)(value)


SPELLED = {datetime: lambda value: value.isoformat().removesuffix("0000")}
OTHER_WORDS = ("primitive_time", "primitive_float")  # which the dictionary rounds or spells in another way


def dictionary() -> dict[str, object]:
    text = (VARIANTS / "data_dictionary.json").read_text()
    found = json.loads(re.sub(r",(\s*})", r"\1", text))  # which ends with a comma
    return {name: value for name, value in found.items() if not name.startswith(OTHER_WORDS)}
