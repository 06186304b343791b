"""Stand-ins for `spark-submit` without their start: one process has all imports, and forks for each job.

A client sends its call with its standard streams, and waits for the exit code; a job ends with its client.
"""

import atexit
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import traceback
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
CLIENT = """
import socket, struct
with socket.socket(socket.AF_UNIX) as server:
    server.connect(command[0])
    socket.send_fds(server, [struct.pack("!I", len(call))], [0, 1, 2])
    server.sendall(call)
    code = server.recv(1)
os._exit(code[0] if code else 1)
"""


@cache
def address() -> str:
    """Start this process's server, which ends with it, and return where it listens."""
    path = str(Path(tempfile.mkdtemp(prefix="warm_jobs_"), "socket"))
    server = subprocess.Popen(
        [sys.executable, "-m", __name__, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        start_new_session=True,  # Ctrl-C goes to the test run
    )
    atexit.register(server.communicate)
    assert server.stdout.readline() == b"ready\n"
    return path


def serve(path: str) -> None:
    """Fork for each call, until the standard input closes."""
    from tests.airflow import stand_in_job  # noqa: PLC0415 - the tests' process does without

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        print("ready", flush=True)  # noqa: T201 - for `address`
        while True:
            ready, _, _ = select.select([listener, sys.stdin], [], [])
            if sys.stdin in ready:
                return
            client, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                os._exit(_work(client, stand_in_job.main))
            client.close()


def _work(client: socket.socket, job) -> int:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    head, streams, _, _ = socket.recv_fds(client, 4, 3)
    call = json.loads(client.recv(struct.unpack("!I", head)[0], socket.MSG_WAITALL))
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.environ.clear()
    os.environ.update(call["environment"])
    os.chdir(call["folder"])
    threading.Thread(target=_end_with, args=(client,), daemon=True).start()
    try:
        job(*call["arguments"][-2:])
        code = 0
    except SystemExit as exit_:
        code = int(exit_.code or 0)
    except BaseException:  # noqa: BLE001 - as an interpreter ends
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    client.send(bytes([code]))
    return code


def _end_with(client: socket.socket) -> None:
    """End this job as soon as its client is gone."""
    client.recv(1)
    os._exit(1)


if __name__ == "__main__":
    serve(sys.argv[1])
