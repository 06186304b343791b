"""Mutated bytes of each format end in the decoder's own error, with little memory."""

import subprocess
import sys

import pytest

ROUNDS = 600  # of each decoder


@pytest.mark.drawn(one_in=1)
def test_mutated_bytes_are_read_or_refused_within_a_limit_of_memory(seed):
    """In a process of its own: the limit is one of the process, and would be pytest's."""
    command = [sys.executable, "-m", "tests.interop.fuzzed_decoders", str(seed), str(ROUNDS)]

    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    assert ended.returncode == 0, f"seed {seed}: {ended.stdout[-4000:]}{ended.stderr[-2000:]}"
