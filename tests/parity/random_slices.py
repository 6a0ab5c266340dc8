"""Random EndpointSlices of a Service: every combination of conditions, hints, ports and addresses that the API allows.

Left out is what kube-proxy itself decides at random: one address in two slices that say different things of it.
"""

from random import Random

from tests.cluster.api import Tree

NODES = ("n1", "n1", "n2", "n3", None)
ENDPOINT_COUNTS = (0, 1, 1, 2, 3, 5, 8)
ZONES = ("za", "zb", "zc")
READY, NOT_READY = {"ready": True}, {"ready": False}
CONDITIONS: tuple[Tree, ...] = (
    READY,
    READY,
    READY,
    {},
    {"ready": True, "serving": True, "terminating": False},
    NOT_READY,
    {"ready": False, "serving": True, "terminating": False},
    {"ready": False, "serving": True, "terminating": True},
    {"ready": False, "serving": True, "terminating": True},
    {"ready": False, "serving": False, "terminating": True},
    {"ready": True, "serving": False, "terminating": True},
    {"ready": True, "serving": True, "terminating": True},
)


def random_slices(random: Random, service: Tree) -> list[Tree]:
    """Of both families even if the Service has only one; now and then none, or one that is not an address at all."""
    metadata = service["metadata"]
    slices: list[Tree] = []
    for family in ("IPv4", "IPv6"):
        hints = random.choice(["none", "none", "zones", "nodes", "both", "some"])
        endpoints = _one_each([_endpoint(random, family, hints) for _ in range(random.choice(ENDPOINT_COUNTS))])
        for number, part in enumerate(_parts(random, endpoints)):
            name = f"{metadata['name']}-{family.lower()}-{number}"
            slices.append(_slice(metadata["namespace"], name, metadata["name"], family, _ports(random, service), part))
    if random.random() < 0.05:
        endpoint = {"addresses": ["pod.example.org"], "conditions": READY}
        name = f"{metadata['name']}-fqdn"
        slices.append(
            _slice(metadata["namespace"], name, metadata["name"], "FQDN", _ports(random, service), [endpoint])
        )
    return slices


def changed_endpoint(random: Random, piece: Tree) -> Tree:
    """The slice with other conditions at one endpoint, as when a pod becomes ready or drains."""
    endpoints = [dict(endpoint) for endpoint in piece["endpoints"]]
    if endpoints:
        random.choice(endpoints)["conditions"] = random.choice(CONDITIONS)
    return piece | {"endpoints": endpoints}


def without_endpoint(random: Random, piece: Tree) -> Tree:
    endpoints = list(piece["endpoints"])
    if endpoints:
        endpoints.remove(random.choice(endpoints))
    return piece | {"endpoints": endpoints}


def without_ambiguity(slices: list[Tree]) -> list[Tree]:
    """The slices of one Service, without the second of two entries for one address that say different things of it."""
    known: dict[str, Tree] = {}
    clear: list[Tree] = []
    for piece in slices:
        kept = [each for each in piece["endpoints"] if known.setdefault(each["addresses"][0], each) == each]
        clear.append(piece | {"endpoints": kept})
    return clear


def _slice(namespace: str, name: str, service: str, family: str, ports: list[Tree], endpoints: list[Tree]) -> Tree:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"namespace": namespace, "name": name, "labels": {"kubernetes.io/service-name": service}},
        "addressType": family,
        "ports": ports,
        "endpoints": endpoints,
    }


def _ports(random: Random, service: Tree) -> list[Tree]:
    """By name and protocol those of the Service, now and then one too few or too many; the numbers are their own."""
    ports = [
        {"name": port.get("name", ""), "protocol": port.get("protocol", "TCP"), "port": random.choice([8080, 8081, 53])}
        for port in service["spec"].get("ports", [])
    ]
    if len(ports) > 1 and random.random() < 0.1:
        ports.pop()
    if random.random() < 0.1:
        ports.append({"name": "extra", "protocol": "TCP", "port": 9000})
    return ports


def _parts(random: Random, endpoints: list[Tree]) -> list[list[Tree]]:
    """Spread over one to three slices; now and then an endpoint is in two of them."""
    count = random.choice([1, 1, 1, 2, 3])
    parts = [endpoints[number::count] for number in range(count)]
    if count > 1 and endpoints and random.random() < 0.3:
        doubled = random.choice(endpoints)
        parts = [part if doubled in part else [*part, doubled] for part in parts]
    return parts


def _endpoint(random: Random, family: str, hints: str) -> Tree:
    node, host = random.choice(NODES), random.randint(2, 60)
    subnet = {"n1": 1, "n2": 2, "n3": 3, None: 4}[node]
    address = f"10.42.{subnet}.{host}" if family == "IPv4" else f"fd42:{subnet}::{host:x}"
    endpoint: Tree = {"addresses": [address], "conditions": random.choice(CONDITIONS), "zone": random.choice(ZONES)}
    if node is not None:
        endpoint["nodeName"] = node
    given: Tree = {}
    if hints in ("zones", "both") or (hints == "some" and random.random() < 0.7):
        given["forZones"] = [{"name": zone} for zone in random.sample(ZONES, random.choice([1, 1, 2]))]
    if hints in ("nodes", "both") or (hints == "some" and random.random() < 0.3):
        given["forNodes"] = [{"name": random.choice(["n1", "n2"])}]
    return endpoint | {"hints": given} if given else endpoint


def _one_each(endpoints: list[Tree]) -> list[Tree]:
    """One entry for each address."""
    return list({endpoint["addresses"][0]: endpoint for endpoint in endpoints}.values())
