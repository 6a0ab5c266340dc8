"""Pods in the API as scheduler and kubelet would have them there: bound to a node, with addresses, ready or not.

Deleting one takes two steps, as in a cluster: from `terminate` on it is terminating, after `remove` it is gone.
"""

from dataclasses import dataclass

from kbpf.demo.exchange import spell
from tests.cluster.api import Api, Refused, Tree
from tests.cluster.e2e.topology import TCP_PORTS, UDP_PORT, Slot

NAMESPACE = "e2e"
PATH = f"/api/v1/namespaces/{NAMESPACE}/pods"


@dataclass(frozen=True)
class Pod:
    name: str
    slot: Slot
    app: str

    @property
    def node(self) -> str:
        return self.slot.node

    def backend(self, port: int, *, ipv6: bool) -> str:
        """As it calls itself."""
        return spell(self.slot.addresses[ipv6], port)


class Pods:
    def __init__(self, api: Api, slots: list[Slot], hosts: dict[str, Slot]) -> None:
        self._api = api
        self._free = list(slots)
        self._hosts = hosts
        self._running: dict[str, Pod] = {}
        self._made = 0

    def run(self, app: str, on: str, *, ready: bool = True, host: bool = False) -> Pod:
        """`host`: on the network of the node."""
        slot = self._hosts[on] if host else next(slot for slot in self._free if slot.node == on)
        self._made += 1
        pod = Pod(f"{app}-{self._made}", slot, app)
        if not host:
            self._free.remove(slot)
        self._running[pod.name] = pod
        self._api.request("POST", PATH, _tree(pod, host=host))
        self.set_ready(pod, ready)
        return pod

    def set_ready(self, pod: Pod, ready: bool = True, phase: str = "Running") -> None:
        tree = self._api.request("GET", f"{PATH}/{pod.name}")
        self._api.request("PUT", f"{PATH}/{pod.name}/status", tree | {"status": _status(pod, phase, ready=ready)})

    def terminate(self, pod: Pod) -> None:
        self._api.request("DELETE", f"{PATH}/{pod.name}", {"gracePeriodSeconds": 600})

    def remove(self, pod: Pod) -> None:
        try:
            self._api.request("DELETE", f"{PATH}/{pod.name}", {"gracePeriodSeconds": 0})
        except Refused as refused:
            if refused.status != 404:
                raise
        if self._running.pop(pod.name, None) and pod.slot not in self._hosts.values():
            self._free.append(pod.slot)

    def remove_all(self) -> None:
        for pod in list(self._running.values()):
            self.remove(pod)


def _tree(pod: Pod, *, host: bool) -> Tree:
    ports = [{"name": f"tcp{port}", "containerPort": port} for port in TCP_PORTS]
    ports.append({"name": "udp", "containerPort": UDP_PORT, "protocol": "UDP"})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": NAMESPACE, "name": pod.name, "labels": {"app": pod.app}},
        "spec": {
            "nodeName": pod.node,
            "hostNetwork": host,
            "containers": [{"name": "echo", "image": "echo", "ports": ports}],
        },
    }


def _status(pod: Pod, phase: str, *, ready: bool) -> Tree:
    return {
        "phase": phase,
        "conditions": [{"type": "Ready", "status": str(ready)}],
        "hostIP": f"192.168.60.1{pod.node[1:]}",
        "hostIPs": [{"ip": f"192.168.60.1{pod.node[1:]}"}],
        "podIP": pod.slot.addresses[0],
        "podIPs": [{"ip": address} for address in pod.slot.addresses],
    }
