"""The cluster that every scenario plays in, seen from node n1; README.md shows it as a table."""

from itertools import islice

from kbpf.datapath.ebpf.shapes import LocalFlag
from kbpf.model.address import Address, Family, parse_address
from kbpf.model.detector import LocalDetector
from kbpf.policy.reference import ReferenceNode

NODE_NAME = "n1"
NODE_ADDRESSES = {Family.IPV4: Address("192.168.60.11"), Family.IPV6: Address("fd60::11")}
ZONES = {"n1": "za", "n2": "zb", "n3": "zc"}
CLUSTER_CIDR = {Family.IPV4: "10.42.0.0/16", Family.IPV6: "fd42::/16"}
SERVICE_CIDR = {Family.IPV4: "10.96.0.0/16", Family.IPV6: "fd96::/112"}
LOOPBACK = {Family.IPV4: Address("127.0.0.1"), Family.IPV6: Address("::1")}

CLIENT_POD = {Family.IPV4: Address("10.42.1.9"), Family.IPV6: Address("fd42:1::9")}
SECOND_POD = (Address("10.42.1.10"), Address("fd42:1::10"))
DEFAULT_SOURCE = {
    **{("pod", family): address for family, address in CLIENT_POD.items()},
    **{("host", family): address for family, address in NODE_ADDRESSES.items()},
    ("ext", Family.IPV4): Address("198.51.100.9"),
    ("ext", Family.IPV6): Address("2001:db8:51::9"),
}

NODE = ReferenceNode(
    local_addresses=frozenset({*NODE_ADDRESSES.values(), *LOOPBACK.values()}),
    # Node ports on loopback are an IPv4 feature of kube-proxy.
    node_port_addresses=frozenset({*NODE_ADDRESSES.values(), LOOPBACK[Family.IPV4]}),
    node_ips=frozenset(NODE_ADDRESSES.values()),
    detectors={family: LocalDetector(cidr=cidr) for family, cidr in CLUSTER_CIDR.items()},
)

LOCAL_FLAGS = {
    **dict.fromkeys(NODE_ADDRESSES.values(), LocalFlag.NODE_PORT | LocalFlag.PRIMARY),
    LOOPBACK[Family.IPV4]: LocalFlag.NODE_PORT | LocalFlag.LOOPBACK,
    LOOPBACK[Family.IPV6]: LocalFlag.LOOPBACK,
}
"""The same for the programs."""


def generated_addresses(count: int) -> list[Address]:
    """Addresses of `endpointsGenerated`: 10.42.64.0/18, nodes n1, n2, n3 in turn (see `node_of_generated`)."""
    hosts = (parse_address(f"10.42.{64 + high}.{low}") for high in range(64) for low in range(1, 255))
    return list(islice(hosts, count))


def node_of_generated(index: int) -> str:
    return f"n{index % 3 + 1}"
