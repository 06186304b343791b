"""A server of files over HTTP in this process, which answers ranges, as DuckDB reads Parquet by them."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

_RANGE = re.compile(r"bytes=(\d+)-(\d*)")


class _Files(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, *, with_body: bool) -> None:
        file = Path(self.translate_path(self.path))
        if not file.is_file():
            self.send_error(404)
            return
        content = file.read_bytes()
        wanted = _RANGE.fullmatch(self.headers.get("Range", ""))
        start, end = 0, len(content) - 1
        if wanted:
            start, end = int(wanted[1]), min(int(wanted[2] or end), end)
        self.send_response(206 if wanted else 200)
        if wanted:
            self.send_header("Content-Range", f"bytes {start}-{end}/{len(content)}")
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(end - start + 1))
        self.end_headers()
        if with_body:
            self.wfile.write(content[start : end + 1])


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder, and yield its URL, which ends in a slash."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Files, directory=str(folder)))
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
