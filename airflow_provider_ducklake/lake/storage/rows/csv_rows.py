"""Records of CSV files as RFC 4180 has them: every field of every record, or an error that names the line.

Arrow's reader takes fields apart, and is lenient: a quoted field that goes on behind its quote, or never
ends, is a field to it. So a pattern of whole records goes over each block with quotes before, and says where
a block may end. *Source:* RFC 4180, and DuckDB 1.5.5's ``read_csv``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
from pyarrow import csv

from ...errors import InvalidInputError

BLOCK_BYTES = 8 * 2**20
_LONGEST = 256 * 2**20  # bytes of a record
_SHOWN = 200  # characters of a record in an error
BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Block:
    """Whole records of a file, and the number of lines before them."""

    content: bytes
    lines: int


@dataclass(frozen=True)
class Dialect:
    """How a CSV file is written; ``quote`` may be empty, ``escape`` is the quote where that is doubled."""

    separator: str = ","
    quote: str = '"'
    escape: str = '"'
    null: str = ""

    @property
    def has_parity(self) -> bool:
        """Return True if the number of quotes before a place says whether it is in a quoted field."""
        return not self.quote or self.escape == self.quote

    @cached_property
    def _field(self) -> bytes:
        sep, quote = re.escape(self.separator).encode(), re.escape(self.quote).encode()
        if not quote:
            return rb"[^%s\r\n]*+" % sep
        if self.escape == self.quote:
            return rb"(?:%s(?:[^%s]++|%s%s)*+%s|(?!%s)[^%s\r\n]*+)" % (*(quote,) * 6, sep)
        return rb"(?:%s|(?!%s)[^%s\r\n]*+)" % (self._escaped, quote, sep)

    @cached_property
    def _escaped(self) -> bytes:
        """A field in quotes, where those within have an escape of their own."""
        quote, esc = re.escape(self.quote).encode(), re.escape(self.escape).encode()
        return rb"%s(?:[^%s%s]++|%s[%s%s])*+%s" % (quote, quote, esc, esc, quote, esc, quote)

    @cached_property
    def _escapes(self) -> re.Pattern[bytes]:
        """Fields in quotes, and the escapes outside of them."""
        sep, esc = re.escape(self.separator).encode(), re.escape(self.escape).encode()
        return re.compile(rb"((?:\A|(?<=[%s\r\n]))%s)|%s" % (sep, self._escaped, esc))

    def for_arrow(self, content: bytes) -> tuple[bytes, str | bool]:
        """Return records as Arrow's reader has to get them, and its escape.

        That reader has it outside of quotes, too, where it stands for itself. *Source:* DuckDB 1.5.5, and
        Spark's reader and writer.
        """
        escape = self.escape.encode()
        has_own = self.quote and self.escape not in ("", self.quote)
        if not has_own or escape not in content or self.quote.encode() not in content:
            return content, False
        return self._escapes.sub(lambda found: found[1] or escape * 2, content), self.escape

    @cached_property
    def record(self) -> re.Pattern[bytes]:
        """A record with its line's end, which the last one of a file may lack."""
        return re.compile(rb"%s(?:%s%s)*+(?:\r?\n|\Z)" % self._parts)

    @cached_property
    def records(self) -> re.Pattern[bytes]:
        """As many whole records as follow each other."""
        return re.compile(rb"(?:%s(?:%s%s)*+\r?\n)*+" % self._parts)

    @cached_property
    def _parts(self) -> tuple[bytes, bytes, bytes]:
        return self._field, re.escape(self.separator).encode(), self._field

    def fields_of(self, record: bytes) -> int:
        """Return the number of a record's fields."""
        return 1 + len(re.findall(self._field + re.escape(self.separator).encode(), record))


class Part:
    """The next bytes of a file, up to so many of them, without the mark at the beginning of a file."""

    def __init__(self, stream: pa.NativeFile, length: int | None = None, *, is_first: bool = True) -> None:
        self._stream, self._left, self._is_first = stream, length, is_first

    def read(self, count: int) -> bytes:
        """Read up to so many bytes."""
        read = bytes(self._stream.read(count if self._left is None else min(count, self._left)))
        if self._left is not None:
            self._left -= len(read)
        if self._is_first:
            read, self._is_first = read.removeprefix(BOM), False
        return read


def blocks(part: Part, dialect: Dialect, *, is_old_mac: bool, lines: int = 0) -> Iterator[Block]:
    """Yield the records of a file, or of a part that begins and ends with one.

    ``is_old_mac``: a carriage return alone ends a line.

    Raises:
        InvalidInputError: a quoted field does not end where it should; the text names the line.
    """
    rest = b""
    while True:
        read = part.read(BLOCK_BYTES)
        if is_old_mac and dialect.quote.encode() not in read:  # else they may stand in a quoted field
            read = read.replace(b"\r", b"\n")
        content = rest + read
        if not read and content and not content.endswith(b"\n"):
            content += b"\n"
        end = _end_of_records(content, dialect)
        if end < len(content) and (not read or len(content) - end > _LONGEST):
            raise _unreadable(content, end, lines)
        if end:
            yield Block(content[:end], lines)
            lines += content.count(b"\n", 0, end)
        rest = content[end:]
        if not read:
            return


def _end_of_records(content: bytes, dialect: Dialect) -> int:
    quote = dialect.quote.encode()
    is_plain = not quote or quote not in content
    if is_plain and content.count(b"\r") == content.count(b"\r\n") + content.endswith(b"\r"):
        return content.rfind(b"\n") + 1
    found = dialect.records.match(content)
    assert found is not None, "nothing matches too"
    return found.end()


def _unreadable(content: bytes, start: int, lines: int) -> InvalidInputError:
    line = lines + content.count(b"\n", 0, start) + 1
    record = content[start : start + _SHOWN * 4].split(b"\n", 1)[0].decode(errors="replace")[:_SHOWN]
    return InvalidInputError(
        f", line {line}: {record!r} is no record: a quoted field has no end, goes on behind its quote, or a "
        "carriage return stands alone. Double the quotes within quoted fields, set the options quote and "
        "escape to what the file has, or multiLine to true if fields without quotes contain some."
    )


def table_of(block: Block, names: Sequence[str], dialect: Dialect) -> pa.Table:
    """Return the fields of records as strings, NULL where an unquoted field is the dialect's ``null``.

    Raises:
        InvalidInputError: a record has more or fewer fields, or is not UTF-8; the text names the line.
    """
    content, escape = dialect.for_arrow(block.content)
    if content.startswith(BOM):  # a field's own; Arrow takes one off each text
        content = BOM + content
    try:
        return csv.read_csv(
            pa.BufferReader(content),
            csv.ReadOptions(use_threads=False, block_size=len(content) + 1, column_names=list(names)),
            csv.ParseOptions(
                delimiter=dialect.separator,
                quote_char=dialect.quote or False,
                double_quote=dialect.escape == dialect.quote,
                escape_char=escape,
                newlines_in_values=True,
                ignore_empty_lines=len(names) > 1,
            ),
            csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                null_values=[dialect.null],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid as error:
        raise _misshapen(block, names, dialect, error) from None


def _misshapen(block: Block, names: Sequence[str], dialect: Dialect, error: Exception) -> InvalidInputError:
    for line, record in _records(block, dialect):
        count, text = dialect.fields_of(record), record.decode(errors="replace").rstrip("\r\n")[:_SHOWN]
        if count != len(names) and record.strip(b"\r\n"):
            return InvalidInputError(
                f", line {line}: {text!r} has {count} fields where the header, or the first record, has "
                f"{len(names)}: {', '.join(names)[:_SHOWN]}. Correct it{_hint(record, dialect)}."
            )
        try:
            record.decode()
        except UnicodeDecodeError:
            return InvalidInputError(
                f", line {line}: {text!r} is not UTF-8. Name the file's own in encoding."
            )
    return InvalidInputError(f": {error}. Correct the file.")


def _hint(record: bytes, dialect: Dialect) -> str:
    other = next((one for one in (";", "\t", "|", ",") if one.encode() in record), None)
    return f", or set the option sep to {other!r}" if other not in (None, dialect.separator) else ""


def _records(block: Block, dialect: Dialect) -> Iterator[tuple[int, bytes]]:
    """Yield each record with the number of its line."""
    line, place = block.lines + 1, 0
    while place < len(block.content):
        found = dialect.record.match(block.content, place)
        if found is None or found.end() == place:
            return
        yield line, found[0]
        line, place = line + found[0].count(b"\n"), found.end()


def line_of(block: Block, row: int, dialect: Dialect, *, skips_blank: bool) -> int:
    """Return the line on which a row of ``table_of`` begins."""
    rows = (line for line, record in _records(block, dialect) if record.strip(b"\r\n") or not skips_blank)
    return next(line for place, line in enumerate(rows) if place == row)


def without_first(block: Block, dialect: Dialect) -> Block:
    """Return the records behind the first one."""
    blank = len(block.content) - len(block.content.lstrip(b"\r\n"))
    found = dialect.record.match(block.content, blank)
    end = len(block.content) if found is None else found.end()
    return Block(block.content[end:], block.lines + block.content.count(b"\n", 0, end))


# --- parts of a file that tasks read beside each other


def count_in(stream: pa.NativeFile, length: int, wanted: bytes) -> int:
    """Count a character, a quote say, in the next bytes of a file."""
    count = 0
    while length and (read := stream.read(min(length, BLOCK_BYTES))):
        count, length = count + read.count(wanted), length - len(read)
    return count


def first_record(stream: pa.NativeFile, offset: int, dialect: Dialect, *, is_quoted: bool) -> int:
    """Return the place of the first record behind ``offset``; ``is_quoted``: that lies in a quoted field."""
    stream.seek(offset)
    quote = re.escape(dialect.quote).encode()
    plain = rb"[^%s\n]*+(?:%s[^%s]*+%s[^%s\n]*+)*+\n" % ((quote,) * 5) if quote else rb"[^\n]*+\n"
    pattern = re.compile((rb"[^%s]*+%s" % (quote, quote) if is_quoted else b"") + plain)
    content = b""
    while read := stream.read(2**16 if not content else BLOCK_BYTES):
        content += read
        found = pattern.match(content)
        if found is not None:
            return offset + found.end()
        if len(content) > _LONGEST:
            raise InvalidInputError(
                f": no record ends in the {_LONGEST} bytes behind byte {offset}, as the file has a quote "
                "within a field without quotes, or one without an end. Set the option multiLine to true to "
                "have one task read it from its beginning."
            )
    return offset + len(content)
