"""Timestamps without a time zone as numbers, for which Spark has no function."""

from __future__ import annotations

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as f

SECOND = 10**6  # microseconds
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR


def micros_of(value: SparkColumn) -> SparkColumn:
    """Return the microseconds since 1970 of a timestamp without time zone, whatever the session's is."""
    parts = (
        (f.unix_date(value.cast("date")), DAY),
        (f.hour(value), HOUR),
        (f.minute(value), MINUTE),
    )
    seconds = (f.date_part(f.lit("SECOND"), value) * f.lit(SECOND)).cast("bigint")
    return sum((part.cast("bigint") * f.lit(unit) for part, unit in parts), start=seconds)


_NANOS = r"^(\d{4}-\d\d-\d\d)[ T](([01]\d|2[0-3]):[0-5]\d:[0-5]\d)(\.\d{1,9})?$"
_FIRST, _LAST = "1677-09-22 00:00:00", "2262-04-11 23:47:16.854775806"  # what DuckDB takes
_INFINITE = 2**63 - 1


def fits_nanos(text: SparkColumn) -> SparkColumn:
    """Whether a text is a timestamp in nanoseconds, as ``2024-01-31 12:30:00.123456789``, or infinite."""
    spaced = f.replace(text, f.lit("T"), f.lit(" "))
    is_day = f.substring(text, 1, 10).try_cast("date").isNotNull()
    return text.isin("infinity", "-infinity") | (text.rlike(_NANOS) & is_day & spaced.between(_FIRST, _LAST))


def nanos_of_text(text: SparkColumn) -> SparkColumn:
    """Return the nanoseconds since 1970 of a text that ``fits_nanos``."""
    days = f.unix_date(f.substring(text, 1, 10).try_cast("date")).cast("bigint")
    hours, minutes, seconds = (f.substring(text, place, 2).try_cast("bigint") for place in (12, 15, 18))
    fraction = f.rpad(f.substring(text, 21, 9), 9, "0").try_cast("bigint")
    whole = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    nanos = whole * 10**9 + fraction
    return f.when(text == "infinity", _INFINITE).when(text == "-infinity", -_INFINITE).otherwise(nanos)
