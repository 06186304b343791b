"""A proxy before a server of S3 that plays a bad network, and a store that refuses."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TypeAlias
from urllib.parse import parse_qs, urlsplit

HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length"}


@dataclass(frozen=True, slots=True)
class Request:
    """What a client asks for; ``key`` is the object's, empty for the bucket itself."""

    method: str
    bucket: str
    key: str
    query: dict[str, list[str]]

    @property
    def operation(self) -> str:
        """S3's name of it, of those that a lake uses."""
        if "uploads" in self.query and self.method == "GET":
            return "ListMultipartUploads"
        match self.method, bool(self.key):
            case "GET" | "HEAD", False:
                return "ListObjectsV2"
            case "GET", True:
                return "GetObject"
            case "HEAD", True:
                return "HeadObject"
            case "PUT", _:
                return "PutObject"
            case "DELETE", _:
                return "DeleteObject"
            case "POST", False:
                return "DeleteObjects"
        return "CompleteMultipartUpload" if "uploadId" in self.query else "CreateMultipartUpload"


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer with an error of S3 instead."""

    status: int
    code: str = ""
    message: str = "as the test asks"


@dataclass(frozen=True, slots=True)
class Drop:
    """Close the connection: before the request reaches the store, or after it was carried out."""

    after: bool = False


@dataclass(frozen=True, slots=True)
class Delay:
    """Answer later."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Twice:
    """Have the store carry the request out twice, as a network that repeats it."""


@dataclass(frozen=True, slots=True)
class Body:
    """Answer with a body of success."""

    content: bytes


Fault: TypeAlias = Refuse | Drop | Delay | Twice | Body | None


@contextmanager
def proxy(upstream: str, fault: Callable[[Request], Fault]) -> Iterator[str]:
    """Serve what ``upstream`` serves, but for what ``fault`` says of each request; yield the URL."""

    class Handler(_Handler):
        store = urlsplit(upstream).netloc
        fault_of = staticmethod(fault)

    class Server(ThreadingHTTPServer):
        request_queue_size = 128  # of connections that wait; a few more would be refused

    server = Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store: str
    fault_of: Callable[[Request], Fault]

    def log_message(self, *_arguments: object) -> None:
        pass

    def _serve(self) -> None:
        body = self._body()
        parts = urlsplit(self.path)
        bucket, _, key = parts.path.lstrip("/").partition("/")
        fault = self.fault_of(
            Request(self.command, bucket, key, parse_qs(parts.query, keep_blank_values=True))
        )
        match fault:
            case Refuse(status, code, message):
                text = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>" if code else ""
                self._answer(status, [("Content-Type", "application/xml")], text.encode())
            case Body(content):
                self._answer(200, [("Content-Type", "application/xml")], content)
            case Drop(after):
                if after:
                    self._forward(body)
                self.close_connection = True
            case _:
                if isinstance(fault, Delay):
                    time.sleep(fault.seconds)
                if isinstance(fault, Twice):
                    self._forward(body)
                self._answer(*self._forward(body))

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve  # noqa: N815 - names of http.server

    def _body(self) -> bytes:
        if self.headers.get("Expect", "").lower() == "100-continue":
            self.send_response_only(100)
            self.end_headers()
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _forward(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection(self.store, timeout=60)
        try:
            headers = {
                name: value
                for name, value in self.headers.items()
                if name.lower() not in HOP_BY_HOP | {"expect"}
            }
            connection.request(self.command, self.path, body, {**headers, "Content-Length": str(len(body))})
            answer = connection.getresponse()
            length = answer.headers.get("Content-Length", "0")
            kept = [(k, v) for k, v in answer.getheaders() if k.lower() not in HOP_BY_HOP]
            if self.command == "HEAD":
                kept.append(("Content-Length", length))
            return answer.status, kept, answer.read()
        finally:
            connection.close()

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):
            self.send_response_only(status)
            for name, value in headers:
                self.send_header(name, value)
            if self.command != "HEAD":
                self.send_header("Content-Length", str(len(body)))
            elif not any(name == "Content-Length" for name, _ in headers):
                self.send_header("Content-Length", "0")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)
