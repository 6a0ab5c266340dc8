"""The API server as the tests use it: put objects there, take them away, read them back. Plain HTTPS and JSON.

`put` answers with the object as the server keeps it, defaults and all: that, not the caller's text, is what the other
side of a comparison must be fed with.
"""

import http.client
import json
import ssl
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

Tree = dict[str, Any]
WRITERS = 8


class Refused(Exception):
    """The API server did not accept a request; the message is its own."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """Which object: kind, namespace (empty for a Node), name."""

    kind: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Resource:
    prefix: str
    plural: str
    has_namespace: bool = True

    def path(self, namespace: str, name: str = "") -> str:
        within = f"/namespaces/{namespace}" if self.has_namespace and namespace else ""
        return f"{self.prefix}{within}/{self.plural}" + (f"/{name}" if name else "")


RESOURCES = {
    "Service": Resource("/api/v1", "services"),
    "EndpointSlice": Resource("/apis/discovery.k8s.io/v1", "endpointslices"),
    "Node": Resource("/api/v1", "nodes", has_namespace=False),
    "Namespace": Resource("/api/v1", "namespaces", has_namespace=False),
}

# Of the kinds whose status a proxy reads: what the server shows where nothing was written.
NO_STATUS: dict[str, Tree] = {"Service": {"loadBalancer": {}}}


def key_of(tree: Tree) -> Key:
    metadata = tree["metadata"]
    return Key(tree["kind"], metadata.get("namespace", ""), metadata["name"])


class Api:
    def __init__(self, host: str, port: int, context: ssl.SSLContext, token: str) -> None:
        self.host, self.port, self.context = host, port, context
        self.headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self.local = threading.local()
        self.connections: list[http.client.HTTPSConnection] = []
        self.known: set[Key] = {Key("Namespace", "", "default")}
        """What `put` has created."""
        self.writers = ThreadPoolExecutor(WRITERS)

    def is_ready(self) -> bool:
        try:
            self.request("GET", "/readyz")
        except (OSError, http.client.HTTPException, Refused):
            return False
        return True

    def put(self, trees: Iterable[Tree]) -> list[Tree]:
        """Create the objects, or replace those of the same name, several at a time; a `status` is written as well."""
        wanted = list(trees)
        for namespace in {tree["metadata"].get("namespace", "") for tree in wanted} - {""}:
            if Key("Namespace", "", namespace) not in self.known:
                self._put_one({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        answers = [self.writers.submit(self._put_one, tree) for tree in wanted]
        wait(answers)
        return [answer.result() for answer in answers]

    def delete(self, keys: Iterable[Key]) -> None:
        list(self.writers.map(self._delete_one, keys))

    def list_of(self, kind: str) -> list[Tree]:
        """Every object of the kind, in all namespaces, complete with apiVersion and kind."""
        resource = RESOURCES[kind]
        answer = self.request("GET", resource.path(""))
        return [{"apiVersion": answer["apiVersion"], "kind": kind, **item} for item in answer["items"]]

    def request(self, method: str, path: str, body: Tree | None = None) -> Tree:
        content = None if body is None else json.dumps(body)
        try:
            status, text = self._exchange(method, path, content)
        except (ssl.SSLEOFError, http.client.RemoteDisconnected):
            # The server ends connections that are idle for long, and says so only at the next attempt.
            status, text = self._exchange(method, path, content)
        if status >= 300:
            raise Refused(status, _message_of(text))
        return json.loads(text) if text.startswith("{") else {}

    def _exchange(self, method: str, path: str, content: str | None) -> tuple[int, str]:
        connection = self._connection()
        try:
            connection.request(method, path, content, self.headers)
            response = connection.getresponse()
            return response.status, response.read().decode()
        except (OSError, http.client.HTTPException):
            connection.close()
            raise

    def reconnect(self) -> None:
        """The server was started again: connections to the one before are of no use."""
        self.local = threading.local()

    def close(self) -> None:
        self.writers.shutdown()
        for connection in self.connections:
            connection.close()

    def _connection(self) -> http.client.HTTPSConnection:
        """One a thread, kept open."""
        connection = getattr(self.local, "connection", None)
        if connection is None:
            connection = http.client.HTTPSConnection(self.host, self.port, context=self.context, timeout=30)
            self.local.connection = connection
            self.connections.append(connection)
        return connection

    def _put_one(self, tree: Tree) -> Tree:
        key = key_of(tree)
        resource = RESOURCES[key.kind]
        own = resource.path(key.namespace, key.name)
        if key in self.known:
            answer = self.request("PUT", own, tree)
        else:
            answer = self.request("POST", resource.path(key.namespace), tree)
            self.known.add(key)
        status = tree.get("status") or NO_STATUS.get(key.kind)
        if status is not None and answer.get("status") != status:
            answer = self.request("PUT", f"{own}/status", answer | {"status": status})
        return answer

    def _delete_one(self, key: Key) -> None:
        """One that is not there is fine."""
        try:
            self.request("DELETE", RESOURCES[key.kind].path(key.namespace, key.name))
        except Refused as refused:
            if refused.status != http.client.NOT_FOUND:
                raise
        self.known.discard(key)


def _message_of(text: str) -> str:
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text.strip()
