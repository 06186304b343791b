"""A process that takes a lake's commit lock and is then stopped: ``python -m … URL``."""

import os
import signal
import sys

from airflow_provider_ducklake.lake.catalog.lake import Lake

if __name__ == "__main__":
    with Lake.connect(sys.argv[1]) as lake, lake.opened.catalog.dialect.writing():
        os.write(sys.stdout.fileno(), b"held\n")
        os.kill(os.getpid(), signal.SIGSTOP)
