"""Both writers of a job: each test of both is a daily one with pyarrow, and in a lane with Spark's own."""

import pytest

NATIVE = pytest.param("native", marks=pytest.mark.native)
ENGINES = pytest.mark.parametrize("engine", [NATIVE, "arrow"])
