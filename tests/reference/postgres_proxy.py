"""A proxy before a PostgreSQL server that plays a bad network, whose connections break."""

from __future__ import annotations

import contextlib
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import TypeAlias

from tests.reference.s3_proxy import Delay, Drop

Fault: TypeAlias = Drop | Delay | None
_AT_ONCE = 1 << 16
_COMMIT = re.compile(rb"\bCOMMIT\b")


def ends_transaction(sent: bytes) -> bool:
    """Whether what a client sent may be a COMMIT, alone or after other statements."""
    return _COMMIT.search(sent) is not None


@contextmanager
def postgres_proxy(port: int, fault: Callable[[bytes], Fault]) -> Iterator[int]:
    """Serve what the server at ``port`` serves, but for what ``fault`` says of what is sent; yield the port.

    ``Drop`` closes the connection before the server gets it, ``Drop(after=True)`` once the server has
    answered, which nobody hears.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    Thread(target=_accept, args=(listener, port, fault), daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)  # else ``accept`` waits on
        listener.close()


def _accept(listener: socket.socket, port: int, fault: Callable[[bytes], Fault]) -> None:
    while True:
        try:
            client, _ = listener.accept()
        except OSError:  # closed
            return
        Thread(target=_serve, args=(client, port, fault), daemon=True).start()


def _serve(client: socket.socket, port: int, fault: Callable[[bytes], Fault]) -> None:
    with client, contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)) as server:
        for one in (client, server):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        answers = _Answers(server, client)
        answers.start()
        try:
            _pass_on(client, server, answers, fault)
        finally:  # a close alone tells the server nothing while the other thread waits for an answer
            for one in (client, server):
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)


def _pass_on(
    client: socket.socket, server: socket.socket, answers: _Answers, fault: Callable[[bytes], Fault]
) -> None:
    while sent := client.recv(_AT_ONCE):
        played = fault(sent)
        if isinstance(played, Delay):
            time.sleep(played.seconds)
        if isinstance(played, Drop):
            if played.after:
                answers.are_heard = False
                server.sendall(sent)
                answers.wait_for_one()
            return
        server.sendall(sent)


class _Answers(Thread):
    """Passes on what the server says, as long as it is to be heard."""

    def __init__(self, server: socket.socket, client: socket.socket) -> None:
        super().__init__(daemon=True)
        self.are_heard = True
        self._server, self._client = server, client
        self._unheard = Event()

    def run(self) -> None:
        with contextlib.suppress(OSError):
            while (answer := self._server.recv(_AT_ONCE)) and self.are_heard:
                self._client.sendall(answer)
        self._unheard.set()
        with contextlib.suppress(OSError):
            self._client.shutdown(socket.SHUT_RDWR)

    def wait_for_one(self) -> None:
        """Wait until the server has answered what nobody hears, or closed the connection."""
        self._unheard.wait(60)
