"""sqlglot's parser, as all of this package calls it.

Where sqlglot does not read a statement, it logs a piece of its text, which may have a secret in it: that line
is left out. Text that is nested deeper than Python's stack, or at which its parser itself fails, is an error
of sqlglot's kind.
"""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import sqlglot
from sqlglot.errors import ParseError, SqlglotError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlglot import exp

# of sqlglot: an IndexError at "map(, 1)", a ValueError at "date_trunc()"
_OWN_MISTAKES = (AssertionError, AttributeError, LookupError, TypeError, ValueError)
TOO_DEEP = "it is nested too deeply."


class TooDeepError(SqlglotError):
    """A text is nested deeper than Python's stack."""


def parse_one(text: str, dialect: str, into: type[exp.Expr] | None = None) -> exp.Expr:
    """Return the tree of a text that is one statement, or that is ``into``.

    Raises:
        SqlglotError: it cannot be read; TooDeepError: it is nested too deeply.
    """
    with typed_and_quiet():
        return sqlglot.parse_one(text, dialect=dialect, into=into)


def parse(text: str, dialect: str) -> list[exp.Expr | None]:
    """Return the trees of the statements of a text.

    Raises:
        SqlglotError: it cannot be read; TooDeepError: it is nested too deeply.
    """
    with typed_and_quiet():
        return sqlglot.parse(text, dialect=dialect)


@contextmanager
def typed_and_quiet() -> Iterator[None]:
    """Keep what sqlglot logs in this thread out of the log.

    Raises:
        TooDeepError: instead of a RecursionError.
        ParseError: instead of what sqlglot's own code raises at texts that it did not expect.
    """
    logger, own = logging.getLogger("sqlglot"), threading.get_ident()

    def is_of_others(record: logging.LogRecord) -> bool:
        return record.thread != own

    logger.addFilter(is_of_others)
    try:
        yield
    except RecursionError:
        raise TooDeepError(TOO_DEEP) from None
    except SqlglotError:
        raise
    except _OWN_MISTAKES as error:
        raise ParseError.new("It cannot be read.") from error
    finally:
        logger.removeFilter(is_of_others)
