"""The moments in which an API server tells of changes of one EndpointSlice: what a proxy's latency is counted from."""

import http.client
import json
import queue
import threading
import time

from tests.bench.cluster_objects import NAMESPACE
from tests.cluster.control_plane import ControlPlane

PATIENCE_S = 30


class SliceWatch:
    def __init__(self, control_plane: ControlPlane, name: str) -> None:
        api = control_plane.api
        path = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices"
        version = api.request("GET", f"{path}/{name}")["metadata"]["resourceVersion"]
        self._connection = http.client.HTTPSConnection(api.host, api.port, context=api.context)
        query = f"watch=true&resourceVersion={version}&fieldSelector=metadata.name={name}"
        self._connection.request("GET", f"{path}?{query}", headers=api.headers)
        self._answer = self._connection.getresponse()
        self._seen: queue.Queue[tuple[int, float]] = queue.Queue()
        self._thread = threading.Thread(target=self._run, name="slice-watch", daemon=True)
        self._thread.start()

    def told_of(self, port: int) -> float:
        """When the server said that the slice's port is this one."""
        while True:
            seen, at = self._seen.get(timeout=PATIENCE_S)
            if seen == port:
                return at

    def _run(self) -> None:
        """Until the server ends."""
        while line := self._answer.readline():
            at = time.monotonic()
            self._seen.put((json.loads(line)["object"]["ports"][0]["port"], at))
