"""A small API server that fails on demand: lists, pages, watches, streaming lists, and every way in which they break.

It keeps objects and a log of what happened to them, and answers over real sockets. Tests change objects with `put` and
`delete`, and the weather with the other methods. One lock guards everything; watches wait on it.
"""

import json
import threading
import time
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.api_answers import Tree, status

PATHS = {"services": "/api/v1/services", "endpointslices": "/apis/discovery.k8s.io/v1/endpointslices"}
PATHS["nodes"] = "/api/v1/nodes"
RESOURCES = {path: resource for resource, path in PATHS.items()}
LONGEST_WATCH_S = 20.0


class FaultyApiServer:
    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.version = 100
        self.oldest = 0
        """Watches from before it are answered with 410."""
        self.objects: dict[str, dict[tuple[str, str], Tree]] = {resource: {} for resource in PATHS}
        self.log: list[tuple[int, str, str, Tree]] = []
        self.refusals: deque[tuple[int, dict[str, str]]] = deque()
        self.token = ""
        self.knows_streaming = True
        self.is_mute = False
        self.pause_after: int | None = None
        self.raw: dict[str, deque[bytes]] = {resource: deque() for resource in PATHS}
        """What watches of a resource are sent as it stands."""
        self.generation = 0
        """Open answers of an earlier generation break off."""
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.port = 0
        self.resume()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    # -- objects -----------------------------------------------------------------------------------------------------

    def put(self, resource: str, tree: Tree) -> None:
        with self.changed:
            key = _key(tree)
            kind = "MODIFIED" if key in self.objects[resource] else "ADDED"
            self.version += 1
            tree["metadata"]["resourceVersion"] = str(self.version)
            self.objects[resource][key] = tree
            self._record(kind, resource, tree)

    def delete(self, resource: str, name: str, namespace: str = "shop") -> None:
        with self.changed:
            tree = self.objects[resource].pop((namespace, name))
            self.version += 1
            gone = tree | {"metadata": tree["metadata"] | {"resourceVersion": str(self.version)}}
            self._record("DELETED", resource, gone)

    def _record(self, kind: str, resource: str, tree: Tree) -> None:
        self.log.append((self.version, kind, resource, tree))
        self.changed.notify_all()

    # -- weather -----------------------------------------------------------------------------------------------------

    def cut(self) -> None:
        """All connections break in the middle of whatever they say."""
        with self.changed:
            self.generation += 1
            self.changed.notify_all()

    def go_away(self) -> None:
        """Nobody listens any more."""
        self.cut()
        self.server.shutdown()
        self.server.server_close()

    def resume(self) -> None:
        self.server = _Server(self, self.port)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.02,), name="faulty-api-server", daemon=True).start()

    def refuse(self, code: int, times: int = 1, **headers: str) -> None:
        """The next requests are answered with this status."""
        self.refusals.extend([(code, headers)] * times)

    def compact(self) -> None:
        """What happened so far can not be watched any more."""
        with self.changed:
            self.oldest = self.version
            self.log.clear()

    def start_versions_anew(self, version: int) -> None:
        """As after a restored backup: the same objects, other numbers, and no memory of what was before."""
        with self.changed:
            self.version = version
            self.log.clear()
            for trees in self.objects.values():
                for tree in trees.values():
                    tree["metadata"]["resourceVersion"] = str(version)

    def send_raw(self, resource: str, *lines: bytes) -> None:
        with self.changed:
            self.raw[resource].extend(lines)
            self.changed.notify_all()

    def send_bookmark(self, resource: str) -> None:
        self.send_raw(resource, json.dumps(_bookmark(self.version)).encode())

    def mute(self, is_mute: bool) -> None:
        """Connections stay open, and nothing comes any more."""
        with self.changed:
            self.is_mute = is_mute
            self.changed.notify_all()

    def asked(self, resource: str) -> list[dict[str, str]]:
        return [query for name, query in list(self.requests) if name == resource]

    def close(self) -> None:
        self.mute(False)
        self.go_away()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, api: FaultyApiServer, port: int) -> None:
        self.api = api
        super().__init__(("127.0.0.1", port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that break off are nothing to report."""


class _Broken(Exception):
    """The answer ends here, without its end."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
        """Silent."""

    def do_GET(self) -> None:
        api = self.server.api
        self.generation = api.generation
        address = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(address.query).items()}
        resource = RESOURCES.get(address.path)
        try:
            if resource is None:
                self._refuse(404, {})
                return
            api.requests.append((resource, query))
            if api.refusals:
                self._refuse(*api.refusals.popleft())
            elif api.token and self.headers.get("Authorization") != f"Bearer {api.token}":
                self._refuse(401, {})
            elif query.get("watch") == "true":
                self._watch(resource, query)
            else:
                self._list(resource, query)
        except (_Broken, OSError):
            self.close_connection = True

    def _refuse(self, code: int, headers: dict[str, str]) -> None:
        self._send_head(code, headers)
        self._send(json.dumps(status(code)).encode())
        self._end()

    def _list(self, resource: str, query: dict[str, str]) -> None:
        api = self.server.api
        with api.changed:
            version, trees = api.version, [api.objects[resource][key] for key in sorted(api.objects[resource])]
        start, limit = int(query.get("continue", 0)), int(query.get("limit", 0)) or len(trees) or 1
        more = str(start + limit) if start + limit < len(trees) else ""
        page = {"metadata": {"resourceVersion": str(version), "continue": more}, "items": trees[start : start + limit]}
        body = json.dumps(page).encode()
        self._send_head(200, {})
        if api.pause_after is not None:
            self._send(body[: len(body) // 2])
            self._pause()
            body = body[len(body) // 2 :]
        self._send(body)
        self._end()

    def _watch(self, resource: str, query: dict[str, str]) -> None:
        api = self.server.api
        if query.get("sendInitialEvents"):
            if not api.knows_streaming:
                self._refuse(422, {})
                return
            seen = self._stream_list(resource)
        else:
            seen = int(query["resourceVersion"])
            self._send_head(200, {})
            if seen < api.oldest:
                self._send_line({"type": "ERROR", "object": status(410, "Expired")})
                self._end()
                return
        self._follow(resource, seen, time.monotonic() + min(LONGEST_WATCH_S, float(query["timeoutSeconds"])))
        self._end()

    def _stream_list(self, resource: str) -> int:
        api = self.server.api
        with api.changed:
            version, trees = api.version, list(api.objects[resource].values())
        self._send_head(200, {})
        for number, tree in enumerate(trees):
            if number == api.pause_after:
                self._pause()
            self._send_line({"type": "ADDED", "object": tree})
        self._send_line(_bookmark(version, ends_list=True))
        return version

    def _follow(self, resource: str, seen: int, deadline: float) -> None:
        """As the real one does, it sends only what has a greater version than the client has seen."""
        api = self.server.api
        while (left_s := deadline - time.monotonic()) > 0:
            with api.changed:
                self._wait_for_news(resource, seen, left_s)
                news = [entry for entry in api.log if entry[2] == resource and entry[0] > seen]
                raw = [api.raw[resource].popleft() for _ in range(len(api.raw[resource]))]
            for line in raw:
                self._send(line + b"\n")
            for version, kind, _, tree in news:
                self._send_line({"type": kind, "object": tree})
                seen = version

    def _wait_for_news(self, resource: str, seen: int, seconds: float) -> None:
        api = self.server.api
        api.changed.wait_for(lambda: self._is_broken or self._has_news(resource, seen), seconds)
        if self._is_broken:
            raise _Broken
        if api.is_mute:
            self._pause_until_heard()

    def _has_news(self, resource: str, seen: int) -> bool:
        api = self.server.api
        return bool(api.raw[resource]) or any(entry[2] == resource and entry[0] > seen for entry in api.log)

    @property
    def _is_broken(self) -> bool:
        return self.generation != self.server.api.generation

    def _pause(self) -> None:
        with self.server.api.changed:
            self._pause_until_heard(always=True)

    def _pause_until_heard(self, *, always: bool = False) -> None:
        api = self.server.api
        api.changed.wait_for(lambda: self._is_broken or not (api.is_mute or always), LONGEST_WATCH_S)
        raise _Broken

    def _send_head(self, code: int, headers: dict[str, str]) -> None:
        self.send_response(code)
        self.send_header("Transfer-Encoding", "chunked")
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def _send_line(self, event: Tree) -> None:
        self._send(json.dumps(event).encode() + b"\n")

    def _send(self, content: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(content), content))

    def _end(self) -> None:
        self.wfile.write(b"0\r\n\r\n")


def _key(tree: Tree) -> tuple[str, str]:
    return tree["metadata"].get("namespace", ""), tree["metadata"]["name"]


def _bookmark(version: int, *, ends_list: bool = False) -> Tree:
    annotations = {"k8s.io/initial-events-end": "true"} if ends_list else {}
    return {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(version), "annotations": annotations}}}
