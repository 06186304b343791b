"""The seed of a run that was given none."""

import random
from collections.abc import Mapping
from datetime import date

SEED = 20261122  # with it a checkout passes or fails, whatever the day


def default_seed(environment: Mapping[str, str], size: str, today: date) -> int:
    """Return the seed of the repository, or of the day where new cases are wanted: in CI and at full size."""
    return int(f"{today:%Y%m%d}") if environment.get("CI") or size == "full" else SEED


def draws(seed: int, name: str, one_in: int) -> bool:
    """Return whether a run of the seed has the named one among those that it draws."""
    return random.Random(f"{seed} {name}").randrange(one_in) == 0
