"""How long a server is waited for that answers something, but never all of it.

A limit for each read is none: a server that sends a byte now and then would be waited for without end.
"""

from __future__ import annotations

import time

_BYTES_PER_SECOND = 65_536  # of a long answer that is waited for beyond the limit
_LONGEST = 10.0  # limits, however fast the answer comes


class AnswerWait:
    """The wait for the answer to one statement after the other."""

    def __init__(self) -> None:
        self.begin(0.0)

    def begin(self, seconds: float) -> None:
        """Begin to wait for an answer, which has so many seconds, and more as long as it comes fast."""
        self._limit = seconds
        self._ends = time.monotonic() + seconds
        self._bought = 0.0
        self.has_heard = False

    def heard(self, byte_count: int) -> None:
        """Note that a part of the answer came: it buys the time that it may take at the least speed."""
        self.has_heard = True
        self._bought = min(self._bought + byte_count / _BYTES_PER_SECOND, (_LONGEST - 1) * self._limit)

    @property
    def left(self) -> float:
        """Seconds; at most 0 when the wait is over."""
        return self._ends + self._bought - time.monotonic()
