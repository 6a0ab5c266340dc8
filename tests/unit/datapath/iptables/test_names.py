"""Chain names: others look for them, and a wrong hash would orphan every chain of an earlier kube-proxy."""

import pytest

from kbpf.datapath.iptables.names import PortChains, is_service_chain
from kbpf.model.names import Protocol, ServiceName, ServicePortName


def name(namespace: str, service: str, port: str, protocol: str = "TCP") -> ServicePortName:
    return ServicePortName(ServiceName(namespace, service), port, Protocol(protocol))


@pytest.mark.parametrize(
    ("port", "digest"),
    [
        (name("ns1", "svc1", "p80"), "XPGD46QRK7WJZT7O"),
        (name("ns2", "svc2", "p80"), "GNZBNJ2PO5MGZ6GT"),
        (name("ns3", "svc3", "p80"), "X27LE4BHSL4DOUIK"),
        (name("ns4", "svc4", "p80"), "4SW47YFZTEDKD3PK"),
        (name("ns5", "svc5", "p80"), "NUKIZ6OKUXPJNT4C"),
        (name("default", "nginx", ""), "2CMXP7HKUVJN7L6M"),
        (name("kube-system", "kube-dns", "dns", "UDP"), "TCOU7JCQXEZGVUNU"),
        (name("default", "kubernetes", "https"), "NPX46M4PTMTKRN6Y"),
    ],
    ids=str,
)
def test_chains_of_a_service_port_carry_the_hash_that_kube_proxy_gives_it(port: ServicePortName, digest: str):
    chains = PortChains(port)
    names = (chains.cluster, chains.local, chains.external, chains.firewall)
    assert names == tuple(f"KUBE-{kind}-{digest}" for kind in ("SVC", "SVL", "EXT", "FW"))


@pytest.mark.parametrize(
    ("port", "address", "chain"),
    [
        (name("ns1", "svc1", "p80"), "10.180.0.1", "KUBE-SEP-SXIVWICOYRO3J4NJ"),
        (name("ns2", "svc2", "p80"), "10.180.0.2", "KUBE-SEP-RS4RBKLTHTF2IUXJ"),
        (name("ns4", "svc4", "p80"), "10.180.0.5", "KUBE-SEP-C6EBXVWJJZMIWKLZ"),
    ],
    ids=str,
)
def test_the_chain_of_a_backend_adds_its_address(port: ServicePortName, address: str, chain: str):
    assert PortChains(port).backend(f"{address}:80") == chain


def test_the_hash_of_an_ipv6_backend_has_brackets_around_the_address():
    chain = PortChains(name("shop", "web", "http")).backend("[fd00:10:244:1::5]:8080")
    assert chain == "KUBE-SEP-SDQJBP3G53U5CYU2"


@pytest.mark.parametrize(
    "chain",
    ["KUBE-SVC-LIKE", "KUBE-SEP-34ZZ2QFGO32YYXX1", "KUBE-SERVICES", "KUBE-SVC-34ZZ2QFGO32YYXXOO", "X-KUBE-SVC-A"],
)
def test_a_similar_name_does_not_make_a_chain_ours(chain: str):
    assert not is_service_chain(chain)
    assert is_service_chain("KUBE-SVC-34ZZ2QFGO32YYXXO")
