"""A server that plays the API of Kubernetes for `spark-submit`: it keeps objects, and tells how pods are.

It schedules nothing: what a pod does is the test's. Of the API there is what a submission uses: create,
apply, get and watch.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Condition, Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

Object = dict[str, Any]
_SECONDS_TO_WATCH = 1_200


@dataclass
class Cluster:
    """The objects by their paths, and all that was asked for, in its order; ``run`` is what pods do."""

    run: Callable[[Object], int]
    objects: dict[str, Object] = field(default_factory=dict)
    requests: list[tuple[str, str, str]] = field(default_factory=list)  # (method, path, body)
    changed: Condition = field(default_factory=Condition)
    version: int = 0
    url: str = ""

    def of_kind(self, kind: str) -> list[Object]:
        """Return the objects of a kind, such as ``pods``."""
        return [one for path, one in self.objects.items() if path.split("/")[-2] == kind]

    def has(self, given: Object) -> bool:
        """Whether an object was not deleted."""
        return any(one["metadata"].get("uid") == given["metadata"]["uid"] for one in self.objects.values())

    def put(self, path: str, given: Object) -> Object:
        """Keep an object as the API server does."""
        with self.changed:
            self.version += 1
            is_new = path not in self.objects
            meta = given.setdefault("metadata", {})
            meta.setdefault("uid", f"00000000-0000-4000-8000-{self.version:012d}")
            meta.setdefault("creationTimestamp", time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
            meta["resourceVersion"] = str(self.version)
            self.objects[path] = given
            self.changed.notify_all()
        if is_new and path.split("/")[-2] == "pods":
            given["status"] = {"phase": "Pending"}
            Thread(target=self._live, args=(path,), daemon=True).start()
        return given

    def _live(self, path: str) -> None:
        """Run a pod to its end."""
        pod = self.objects[path]
        with self.changed:
            self.changed.wait_for(lambda: self._has_volumes(path, pod), _SECONDS_TO_WATCH)
        self._report(path, "Running", {"running": {"startedAt": pod["metadata"]["creationTimestamp"]}})
        code = self.run(pod)
        if not self.has(pod):
            return
        reason = {0: "Completed", 137: "OOMKilled"}.get(code, "Error")
        ended = {"terminated": {"exitCode": code, "reason": reason}}
        self._report(path, "Failed" if code else "Succeeded", ended)

    def _has_volumes(self, path: str, pod: Object) -> bool:
        """Whether the pod may start: what it mounts is there."""
        maps = [one["configMap"]["name"] for one in pod["spec"].get("volumes", ()) if "configMap" in one]
        namespace = path.rpartition("/pods/")[0]
        return all(f"{namespace}/configmaps/{name}" in self.objects for name in maps)

    def _report(self, path: str, phase: str, state: Object) -> None:
        pod = json.loads(json.dumps(self.objects[path]))
        container = pod["spec"]["containers"][0]
        status = {
            "name": container["name"],
            "image": container.get("image", ""),
            "imageID": "",
            "ready": False,
            "restartCount": 0,
            "state": state,
        }
        pod["status"] = {"phase": phase, "containerStatuses": [status]}
        self.put(path, pod)


@contextmanager
def kubernetes(run: Callable[[Object], int]) -> Iterator[Cluster]:
    """Start the server and yield the cluster; ``run`` is given each pod and returns its exit code."""
    cluster = Cluster(run)

    class Handler(_Handler):
        of = cluster

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    Thread(target=server.serve_forever, daemon=True).start()
    cluster.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield cluster
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    of: Cluster

    def log_message(self, *_arguments: object) -> None:
        pass

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        parts = urlsplit(self.path)
        query = parse_qs(parts.query)
        self.of.requests.append((self.command, self.path, body))
        match self.command:
            case "POST":
                given = json.loads(body)
                path = f"{parts.path}/{given['metadata']['name']}"
                self._answer(409 if path in self.of.objects else 201, self.of.put(path, given))
            case "PUT" | "PATCH":
                self._answer(200, self.of.put(parts.path, json.loads(body)))
            case "DELETE":
                self.of.objects.pop(parts.path, None)
                self._answer(200, {"kind": "Status", "apiVersion": "v1", "status": "Success"})
            case _ if query.get("watch") == ["true"]:
                self._watch(parts.path, query)
            case _:
                self._get(parts.path, query)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815 - names of http.server

    def _get(self, path: str, query: dict[str, list[str]]) -> None:
        if (found := self.of.objects.get(path)) is not None:
            self._answer(200, found)
        elif path.rpartition("/")[2] in ("pods", "configmaps", "services", "secrets"):
            items = [one for _, one in self._chosen(path, query)]
            self._answer(200, {"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items})
        else:
            status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404}
            self._answer(404, {**status, "reason": "NotFound", "message": f"{path} not found"})

    def _chosen(self, path: str, query: dict[str, list[str]]) -> list[tuple[str, Object]]:
        wanted = dict(one.split("=", 1) for text in query.get("fieldSelector", []) for one in text.split(","))
        name = wanted.get("metadata.name")
        labels = [one.split("=", 1) for text in query.get("labelSelector", []) for one in text.split(",")]
        return [
            (key, one)
            for key, one in list(self.of.objects.items())
            if key.rpartition("/")[0] == path
            and (name is None or one["metadata"]["name"] == name)
            and all(one["metadata"].get("labels", {}).get(label) == value for label, value in labels)
        ]

    def _watch(self, path: str, query: dict[str, list[str]]) -> None:
        """Send each state of the objects, a line of JSON for each; never by a web socket."""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        if self.headers.get("Upgrade"):
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        sent: dict[str, str] = {}
        end = time.monotonic() + _SECONDS_TO_WATCH
        with suppress(BrokenPipeError, ConnectionResetError):
            while time.monotonic() < end:
                self._send_changes(path, query, sent)
                with self.of.changed:
                    self.of.changed.wait(0.2)

    def _send_changes(self, path: str, query: dict[str, list[str]], sent: dict[str, str]) -> None:
        for key, one in self._chosen(path, query):
            version = one["metadata"]["resourceVersion"]
            if sent.get(key) != version:
                event = {"type": "MODIFIED" if key in sent else "ADDED", "object": one}
                line = json.dumps(event).encode() + b"\n"
                self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
                self.wfile.flush()
                sent[key] = version

    def _answer(self, status: int, content: Object) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
