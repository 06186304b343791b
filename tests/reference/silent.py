"""Servers that are there and do not answer: each listens, and says nothing, or always a little more."""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread


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


Talk = Callable[[socket.socket], None]


@contextmanager
def talking_server(begin: Talk, again: bytes) -> Iterator[int]:
    """Yield a port where each connection gets a beginning, and then the same bytes ten times a second."""
    over = Event()

    def talk(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            begin(connection)
            while not over.wait(0.1):
                connection.sendall(again)

    def serve() -> None:
        with suppress(OSError):  # the listener is closed
            while True:
                Thread(target=talk, args=(listener.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0), backlog=100) as listener:
        Thread(target=serve, daemon=True).start()
        try:
            yield listener.getsockname()[1]
        finally:
            over.set()
            listener.shutdown(socket.SHUT_RDWR)
