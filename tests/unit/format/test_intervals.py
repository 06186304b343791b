import pytest

from airflow_provider_ducklake.lake.format.types.texts import INTERVAL, parse_interval


@pytest.mark.parametrize(
    ("text", "months", "days", "microseconds"),
    [
        ("00:00:00", 0, 0, 0),
        ("1 year 2 months -3 days 05:00:00.000001", 14, -3, 18_000_000_001),
        ("-2 years -1 month 1 day", -25, 1, 0),
        ("-00:00:01.5", 0, 0, -1_500_000),
        ("2562047788:00:54.775807", 0, 0, 2**63 - 1),
        ("14 months -3 days 18000000001 microseconds", 14, -3, 18_000_000_001),  # a struct's member
        ("1 year 2 mons -3 days +05:00:00.000001", 14, -3, 18_000_000_001),  # PostgreSQL's
    ],
)
def test_texts_of_the_reference_are_read(text, months, days, microseconds):
    assert INTERVAL.unpack(parse_interval(text)) == (months, days, microseconds)


@pytest.mark.parametrize("text", ["", "soon", "1 year x", "1 week", "200000000 years", "1:2:3"])
def test_other_texts_are_refused(text):
    with pytest.raises(ValueError, match="interval"):
        parse_interval(text)
