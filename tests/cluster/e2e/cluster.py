"""A small cluster in short words: Services and pods are written into a real API server, and connections tell the rest.

    web = cluster.service("web")
    pod = cluster.pods.run("web", on="n1")
    cluster.reaches("pod n2", web.cluster_ips(80), [pod])

Every look is repeated until it shows what is expected twice in a row.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from kbpf.demo.exchange import Answer
from tests.cluster.api import Key, Tree
from tests.cluster.control_plane import ControlPlane
from tests.cluster.e2e.node_proxy import NodeProxy
from tests.cluster.e2e.pods import NAMESPACE, Pod, Pods
from tests.cluster.e2e.topology import PATIENCE_S, UDP_PORT, Topology, is_ipv6, spelled, target
from tests.cluster.objects import node

FLOWS_PER_POD = 20
LAG_S = 30.0
"""So long may a change take on a busy machine; the conformance suite allows minutes."""
SILENCE_S = 0.7
ZONES = {"n1": "za", "n2": "zb", "n3": "zc"}
SERVICES = f"/api/v1/namespaces/{NAMESPACE}/services"
SLICES = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices"
HTTP = {"name": "http", "port": 80, "targetPort": 8080}
UDP = {"name": "udp", "port": 80, "targetPort": UDP_PORT, "protocol": "UDP"}


@dataclass(frozen=True)
class Exposed:
    """A Service as the API server keeps it."""

    tree: Tree

    @property
    def name(self) -> str:
        return str(self.tree["metadata"]["name"])

    def cluster_ips(self, port: int, protocol: str = "TCP") -> list[str]:
        return [spelled(address, port, protocol) for address in self.tree["spec"]["clusterIPs"]]

    def node_port(self, name: str = "http") -> int:
        return next(int(each["nodePort"]) for each in self.tree["spec"]["ports"] if each["name"] == name)

    @property
    def health_port(self) -> int:
        return int(self.tree["spec"]["healthCheckNodePort"])


class Cluster:
    def __init__(self, control_plane: ControlPlane, topology: Topology, proxies: dict[str, NodeProxy]) -> None:
        self.control_plane = control_plane
        self.api = control_plane.api
        self.topology = topology
        self.proxies = proxies
        self.pods = Pods(self.api, topology.slots, topology.hosts)
        self._markers = 0
        for name, zone in ZONES.items():
            self.show_node(name, zone)

    def show_node(self, name: str, zone: str) -> None:
        number = name[1:]
        tree = node(name, f"192.168.60.1{number}", f"fd60::1{number}", podCIDRs=[f"10.42.{number}.0/24"])
        tree["metadata"]["labels"] = {"topology.kubernetes.io/zone": zone, "kubernetes.io/hostname": name}
        self.api.put([tree])

    def proxy_on(self, node_name: str) -> NodeProxy:
        return self.proxies[node_name]

    # -- objects -----------------------------------------------------------------------------------------------------

    def service(
        self, name: str, *ports: Tree, labels: Tree | None = None, app: str | None = None, **spec: object
    ) -> Exposed:
        """In both families, selecting the pods of the app of its name, unless `spec` says otherwise."""
        defaults = {
            "ports": list(ports) or [HTTP],
            "selector": {"app": app or name},
            "ipFamilyPolicy": "PreferDualStack",
        }
        metadata = {"namespace": NAMESPACE, "name": name, "labels": labels or {}}
        wanted = {key: value for key, value in {**defaults, **spec}.items() if value is not None}
        tree = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": wanted}
        return Exposed(self.api.request("POST", SERVICES, tree))

    def edit(self, service: Exposed, change: Callable[[Tree], None]) -> Exposed:
        tree = self.api.request("GET", f"{SERVICES}/{service.name}")
        change(tree)
        return Exposed(self.api.request("PUT", f"{SERVICES}/{service.name}", tree))

    def set_load_balancer(self, service: Exposed, *ingress: Tree) -> None:
        """What a load balancer's controller writes."""
        tree = self.api.request("GET", f"{SERVICES}/{service.name}")
        status = {"loadBalancer": {"ingress": list(ingress)}}
        self.api.request("PUT", f"{SERVICES}/{service.name}/status", tree | {"status": status})

    def slice(self, service: str, name: str, pods: Iterable[Pod], *ports: Tree, **metadata: object) -> None:
        """One written by hand."""
        tree = {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"kubernetes.io/service-name": service}}
            | metadata,
            "addressType": "IPv4",
            "ports": list(ports) or [{"name": "http", "port": 8080}],
            "endpoints": [
                {"addresses": [pod.slot.addresses[0]], "conditions": {"ready": True}, "nodeName": pod.node}
                for pod in pods
            ],
        }
        self.api.request("POST", SLICES, tree)

    def relabel_slice(self, name: str, labels: Tree) -> None:
        tree = self.api.request("GET", f"{SLICES}/{name}")
        tree["metadata"]["labels"] = labels
        self.api.request("PUT", f"{SLICES}/{name}", tree)

    def delete(self, service: Exposed) -> None:
        """With its slices, as the garbage collector does."""
        self.api.delete([Key("Service", NAMESPACE, service.name)])
        self.api.request("DELETE", f"{SLICES}?labelSelector=kubernetes.io/service-name={service.name}")

    def clear(self) -> None:
        for tree in self.api.request("GET", SERVICES)["items"]:
            self.delete(Exposed(tree))
        self.pods.remove_all()
        self.api.request("DELETE", SLICES)
        for name, zone in ZONES.items():
            self.show_node(name, zone)

    # -- what connections show ---------------------------------------------------------------------------------------

    def ask(self, origin: str, to: str, count: int = 1, **how: object) -> list[Answer]:
        """`how` is any argument of `target`."""
        rounds = self.topology.agent(origin).flows([target(to, **how)], count)  # type: ignore[arg-type]
        return [answer for (answer,) in rounds]

    def reaches(
        self, origin: str, to: str | Iterable[str], pods: Sequence[Pod], *, at: int = 8080, **how: object
    ) -> list[Answer]:
        """Exactly these pods, at this port of theirs; the last answers."""
        answers: list[Answer] = []
        for destination in [to] if isinstance(to, str) else to:
            expected: set[str | None] = {pod.backend(at, ipv6=is_ipv6(destination)) for pod in pods}
            count = FLOWS_PER_POD * len(expected) if len(expected) > 1 else FLOWS_PER_POD // 2

            def shown(destination: str = destination, count: int = count) -> set[str | None]:
                answers[:] = self.ask(origin, destination, count, **how)
                return {answer.backend or answer.error for answer in answers}

            shows(shown, expected, f"{origin} → {destination}")
        return answers

    def fails(self, origin: str, to: str | Iterable[str], *, error: str = "", **how: object) -> None:
        """No answer, whatever the reason; or refused at once, when `error` says so."""
        self.settle()
        for destination in [to] if isinstance(to, str) else to:

            def shown(destination: str = destination) -> set[str | None]:
                patience_s = PATIENCE_S if error else SILENCE_S
                answers = self.ask(origin, destination, 3, timeout_s=patience_s, **how)
                return {answer.backend or (error and answer.error) or None for answer in answers}

            shows(shown, {error or None}, f"{origin} → {destination}")

    def settle(self) -> None:
        """Until both proxies have done all that was written so far: what they do with a later Service shows it."""
        self._markers += 1
        name = f"marker{self._markers}"
        marker = self.service(name, selector=None, ipFamilyPolicy="SingleStack")
        pod = Pod(name, self.topology.slots[-1], name)
        self.slice(name, name, [pod])
        for node_name in self.proxies:
            self.reaches(f"pod {node_name}", marker.cluster_ips(80), [pod])
        self.delete(marker)

    def node_ports(self, node_name: str, port: int, protocol: str = "TCP") -> list[str]:
        return [spelled(address, port, protocol) for address in self.topology.nodes[node_name].addresses]


def shows(look: Callable[[], set[str | None]], expected: set[str | None], what: str) -> None:
    """Twice in a row: once may be chance, while a change is on its way."""
    deadline = time.monotonic() + LAG_S
    in_a_row = 0
    while in_a_row < 2:
        seen = look()
        in_a_row = in_a_row + 1 if seen == expected else 0
        assert in_a_row or time.monotonic() < deadline, f"{what}: {seen} instead of {expected} after {LAG_S:.0f} s"
        time.sleep(0.02 if in_a_row else 0.05)
