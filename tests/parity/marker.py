"""A Service whose port and endpoints say which step the rules are of.

A proxy sees the changes of Services in order, and those of EndpointSlices in order. So when the step's number is in the
rules as the port of the marker's cluster IP, and as the port of its endpoint, everything written before it is in force.
"""

from tests.cluster.api import Tree
from tests.parity.rules import Ruleset

NAMESPACE, NAME, PORT_NAME = "parity", "marker", "step"
CLUSTER_IP = {"IPv4": "10.96.255.254", "IPv6": "fd96::ffff"}
ENDPOINT = {"IPv4": "10.42.1.250", "IPv6": "fd42:1::fa"}
FIRST_PORT, PORTS = 1024, 60_000


def port_of(step: int) -> int:
    return FIRST_PORT + step % PORTS


def marker(step: int) -> list[Tree]:
    return [_service(step), *(_slice(step, family) for family in CLUSTER_IP)]


def shows(ruleset: Ruleset, family: str, step: int) -> bool:
    number = port_of(step)
    services = ruleset.get(("nat", "KUBE-SERVICES"))
    if services is None:
        return False
    entry = next((rule for rule in services.rules if f"{NAMESPACE}/{NAME}:{PORT_NAME} cluster IP" in rule), "")
    if f"--dport {number} " not in entry:
        return False
    endpoint = ENDPOINT[family] if family == "IPv4" else f"[{ENDPOINT[family]}]"
    target = f"--to-destination {endpoint}:{number}"
    return any(rule.endswith(target) for chain in ruleset.values() for rule in chain.rules)


def _service(step: int) -> Tree:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"namespace": NAMESPACE, "name": NAME},
        "spec": {
            "clusterIP": CLUSTER_IP["IPv4"],
            "clusterIPs": list(CLUSTER_IP.values()),
            "ipFamilies": list(CLUSTER_IP),
            "ipFamilyPolicy": "RequireDualStack",
            "ports": [{"name": PORT_NAME, "port": port_of(step), "protocol": "TCP"}],
        },
    }


def _slice(step: int, family: str) -> Tree:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "namespace": NAMESPACE,
            "name": f"{NAME}-{family.lower()}",
            "labels": {"kubernetes.io/service-name": NAME},
        },
        "addressType": family,
        "ports": [{"name": PORT_NAME, "port": port_of(step), "protocol": "TCP"}],
        "endpoints": [{"addresses": [ENDPOINT[family]], "conditions": {"ready": True}}],
    }
