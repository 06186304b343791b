"""Find the law by which a figure grows from measurements of it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_CONSTANT = 2.0  # times that the largest figure may be of the smallest
_LAWS = ((0.3, "logarithmic"), (1.5, "linear"), (math.inf, "quadratic"))  # by exponents that they are below


def law_of(sizes: Sequence[float], figures: Sequence[float], floor: float) -> str:
    """Return by which law the figures grow, as the two of the largest sizes show it.

    Figures below ``floor`` are noise.
    """
    raised = [max(one, floor) for one in figures]
    if len(raised) < 2:
        return "?"
    if max(raised) < _CONSTANT * min(raised):
        return "constant"
    exponent = math.log(raised[-1] / raised[-2]) / math.log(sizes[-1] / sizes[-2])
    return next(law for bound, law in _LAWS if exponent < bound)
