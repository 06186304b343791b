"""Servers that are there and do not answer: each listens, and says nothing."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def silent_server() -> Iterator[int]:
    """Yield a port where the kernel takes connections, for a process that never looks at them."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listener:
        yield listener.getsockname()[1]


@contextmanager
def dropping_server() -> Iterator[int]:
    """Yield a port where packets are lost: a queue of connections that is full."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        port = listener.getsockname()[1]
        waiting = []
        for _ in range(2):
            one = socket.socket()
            one.setblocking(False)  # noqa: FBT003 - it takes it by place alone
            one.connect_ex(("127.0.0.1", port))
            waiting.append(one)
        try:
            yield port
        finally:
            for one in waiting:
                one.close()
