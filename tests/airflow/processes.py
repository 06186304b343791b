"""Python in a process of its own, to see what an import brings along."""

import subprocess
import sys
import textwrap


def run_python(code: str, timeout: float = 120) -> str:
    """Run code and return what it prints last; Airflow may log before that."""
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()[-1]
