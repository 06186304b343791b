from decimal import Decimal

import pyarrow as pa

from airflow_provider_ducklake.lake.format.types.ducklake_types import parse_type
from airflow_provider_ducklake.lake.storage.arrow.rows import physical


def test_a_decimal_keeps_all_its_digits():
    value = pa.scalar(Decimal("1234567890123456789012345678901234567.8"), pa.decimal128(38, 1))

    assert physical(value, parse_type("decimal(38,1)")) == 12345678901234567890123456789012345678


def test_a_uuid_is_its_bytes_whether_arrow_knows_uuids_or_not():
    value = bytes(range(16))

    for type_ in (pa.uuid(), pa.binary(), pa.binary(16)):
        assert physical(pa.array([value], type_)[0], parse_type("uuid")) == value


def test_seconds_are_microseconds_and_infinite_ones_stay_so():
    infinite = 2**63 - 1

    assert physical(pa.scalar(2_000_000, pa.timestamp("us")), parse_type("timestamp_s")) == 2_000_000
    assert physical(pa.scalar(infinite, pa.timestamp("us")), parse_type("timestamp_s")) == infinite
