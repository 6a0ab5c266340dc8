"""From one service port to its rules. Pure.

`entries` are the lines that lead to it from the chains all services share; `chains` are its own, all in table nat. The
text is kube-proxy's, byte for byte. Called by the rule book for service ports that changed.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from kbpf.datapath.iptables.counters import LOCALHOST_NODE_PORTS, counts
from kbpf.datapath.iptables.names import (
    EXTERNAL_SERVICES,
    MARK_MASQUERADE,
    NODE_PORTS,
    PROXY_FIREWALL,
    SERVICES,
    PortChains,
)
from kbpf.datapath.iptables.ruleset import Chain, ChainKey, Table, comment, word
from kbpf.datapath.iptables.settings import IptablesSettings
from kbpf.model.address import Address, host_port
from kbpf.model.detector import LocalDetector, in_cidr
from kbpf.model.table import Backend, Frontend, FrontendKind, Outcome, ResolvedPort, View

NAT_SERVICES = ChainKey(Table.NAT, SERVICES)
NAT_NODE_PORTS = ChainKey(Table.NAT, NODE_PORTS)
FILTER_SERVICES = ChainKey(Table.FILTER, SERVICES)
FILTER_EXTERNAL_SERVICES = ChainKey(Table.FILTER, EXTERNAL_SERVICES)
FILTER_NODE_PORTS = ChainKey(Table.FILTER, NODE_PORTS)
FILTER_PROXY_FIREWALL = ChainKey(Table.FILTER, PROXY_FIREWALL)

VERDICT_TEXT = {Outcome.REJECT: "has no endpoints", Outcome.DROP: "has no local endpoints"}
VERDICT_TARGET = {Outcome.REJECT: "REJECT", Outcome.DROP: "DROP"}
ENTRY_TEXT = {
    FrontendKind.CLUSTER_IP: "cluster IP",
    FrontendKind.EXTERNAL_IP: "external IP",
    FrontendKind.LOAD_BALANCER_IP: "loadbalancer IP",
}


class Entry(NamedTuple):
    chain: ChainKey
    rule: str


class PortRules(NamedTuple):
    entries: tuple[Entry, ...] = ()
    chains: tuple[Chain, ...] = ()


def render_port(
    port: ResolvedPort, frontends: Sequence[Frontend], settings: IptablesSettings, *, with_comments: bool
) -> PortRules:
    """The rules of `port` for those of its frontends that are written here.

    `with_comments` is False in large clusters. Raises ValueError for a name that no rule can carry.
    """
    renderer = PortRenderer(port, frontends, settings, with_comments)
    return PortRules(tuple(renderer.entries()), tuple(renderer.chains()))


class Destination(NamedTuple):
    """A backend as rules name it. Addresses are canonical text, so they need no further check."""

    address: Address
    endpoint: str
    chain: str


class PortRenderer:
    """One service port while it is rendered: what its rules have in common."""

    def __init__(
        self, port: ResolvedPort, frontends: Sequence[Frontend], settings: IptablesSettings, with_comments: bool
    ) -> None:
        self.port = port
        self.settings = settings
        self.with_comments = with_comments
        self.name = word(str(port.name))
        self.backend_comment = f"{comment(self.name)} " if with_comments else ""
        self.names = PortChains(port.name)
        protocol = port.protocol.value.lower()
        self.protocol = f"-m {protocol} -p {protocol}"
        self.cluster_ip = next((each for each in frontends if each.kind is FrontendKind.CLUSTER_IP), None)
        self.external = [each for each in frontends if each.kind is not FrontendKind.CLUSTER_IP]
        self.load_balancers = [each for each in frontends if each.kind is FrontendKind.LOAD_BALANCER_IP]
        self.needs_external = port.has_any_endpoint and bool(self.external)
        self.needs_firewall = port.has_any_endpoint and bool(self.load_balancers and port.source_ranges)

    # -- entries -----------------------------------------------------------------------------------------------------

    def entries(self) -> Iterator[Entry]:
        if self.cluster_ip is not None:
            yield self._cluster_ip_entry(self.cluster_ip)
        for frontend in self.external:
            if frontend.kind is FrontendKind.NODE_PORT:
                yield from self._node_port_entries(frontend)
            else:
                yield from self._external_entries(frontend)
        if self.port.health_check_node_port:
            text = comment(f"{self.name} health check node port")
            match = f"-m tcp -p tcp --dport {self.port.health_check_node_port}"
            yield Entry(FILTER_NODE_PORTS, f"-A {NODE_PORTS} {text} {match} -j ACCEPT")

    def _cluster_ip_entry(self, frontend: Frontend) -> Entry:
        outcome = self.port.internal.outcome
        if outcome is Outcome.FORWARD:
            text = comment(f"{self.name} {ENTRY_TEXT[frontend.kind]}")
            return Entry(NAT_SERVICES, f"-A {SERVICES} {text} {self._match(frontend)} -j {self._internal_chain}")
        text = comment(f"{self.name} {VERDICT_TEXT[outcome]}")
        target = VERDICT_TARGET[outcome]
        return Entry(FILTER_SERVICES, f"-A {SERVICES} {text} {self._match(frontend)} -j {target}")

    def _external_entries(self, frontend: Frontend) -> Iterator[Entry]:
        """An external IP or a load balancer IP."""
        is_filtered = self.needs_firewall and frontend.kind is FrontendKind.LOAD_BALANCER_IP
        match = self._match(frontend)
        if self.needs_external:
            text = comment(f"{self.name} {ENTRY_TEXT[frontend.kind]}")
            target = self.names.firewall if is_filtered else self.names.external
            yield Entry(NAT_SERVICES, f"-A {SERVICES} {text} {match} -j {target}")
        if is_filtered:
            text = comment(f"{self.name} traffic not accepted by {self.names.firewall}")
            yield Entry(FILTER_PROXY_FIREWALL, f"-A {PROXY_FIREWALL} {text} {match} -j DROP")
        if self.port.external.outcome is not Outcome.FORWARD:
            yield self._external_verdict(match)

    def _node_port_entries(self, frontend: Frontend) -> Iterator[Entry]:
        match = f"{self.protocol} --dport {frontend.port}"
        if self.needs_external:
            if self.settings.has_counters and self.settings.has_localhost_node_ports(self.port.family):
                counted = f"{self.protocol} -d 127.0.0.0/8 --dport {frontend.port} {counts(LOCALHOST_NODE_PORTS)}"
                rule = f"-A {NODE_PORTS} {comment(self.name)} {counted} -j {self.names.external}"
                yield Entry(NAT_NODE_PORTS, rule)
            rule = f"-A {NODE_PORTS} {comment(self.name)} {match} -j {self.names.external}"
            yield Entry(NAT_NODE_PORTS, rule)
        if self.port.external.outcome is not Outcome.FORWARD:
            yield self._external_verdict(f"-m addrtype --dst-type LOCAL {match}")

    def _external_verdict(self, match: str) -> Entry:
        outcome = self.port.external.outcome
        text = comment(f"{self.name} {VERDICT_TEXT[outcome]}")
        rule = f"-A {EXTERNAL_SERVICES} {text} {match} -j {VERDICT_TARGET[outcome]}"
        return Entry(FILTER_EXTERNAL_SERVICES, rule)

    # -- chains ------------------------------------------------------------------------------------------------------

    def chains(self) -> Iterator[Chain]:
        if self.needs_external:
            yield self._external_chain()
        if self.needs_firewall:
            yield self._firewall_chain()
        used: dict[str, Destination] = {}
        for view, chain in ((View.CLUSTER, self.names.cluster), (View.LOCAL, self.names.local)):
            backends = self.port.backends(view)
            if backends and self._uses(view):
                destinations = [self._destination(backend) for backend in backends]
                yield self._balancing_chain(chain, destinations)
                used.update((each.chain, each) for each in destinations)
        yield from map(self._backend_chain, used.values())

    def _destination(self, backend: Backend) -> "Destination":
        endpoint = host_port(backend.address, backend.port)
        return Destination(backend.address, endpoint, self.names.backend(endpoint))

    def _uses(self, view: View) -> bool:
        """Whether some frontend sends traffic to this list; external ones always have a way to the cluster list."""
        if self.cluster_ip is not None and self.port.internal.view is view:
            return True
        return bool(self.external) and (view is View.CLUSTER or self.port.external.view is view)

    def _external_chain(self) -> Chain:
        chain, destinations = self.names.external, f"{self.name} external destinations"
        rules: list[str] = []
        if self.port.external.view is View.CLUSTER:
            text = comment(f"masquerade traffic for {destinations}")
            rules.append(f"-A {chain} {text} -j {MARK_MASQUERADE}")
        elif self.port.cluster:
            # Pods and the node itself are inside: they need not be kept to local backends.
            match = is_local_match(self._detector)
            if match is not None:
                text = comment(f"pod traffic for {destinations}")
                rules.append(f"-A {chain} {text} {match}-j {self.names.cluster}")
            from_node = "-m addrtype --src-type LOCAL"
            text = comment(f"masquerade LOCAL traffic for {destinations}")
            rules.append(f"-A {chain} {text} {from_node} -j {MARK_MASQUERADE}")
            text = comment(f"route LOCAL traffic for {destinations}")
            rules.append(f"-A {chain} {text} {from_node} -j {self.names.cluster}")
        if self.port.external.outcome is Outcome.FORWARD:
            is_local = self.port.external.view is View.LOCAL
            rules.append(f"-A {chain} -j {self.names.local if is_local else self.names.cluster}")
        return Chain(chain, tuple(rules))

    def _firewall_chain(self) -> Chain:
        chain = self.names.firewall
        head = f"-A {chain} {comment(f'{self.name} loadbalancer IP')}"
        ranges = self.port.source_ranges
        sources = [word(cidr) for cidr in ranges]
        node_ip = self.settings.node_ips.get(self.port.family)
        if node_ip is not None and any(in_cidr(node_ip, cidr) for cidr in ranges):
            # A node that holds the address itself sends from it.
            sources += [word(frontend.address or "") for frontend in self.load_balancers]
        rules = [f"{head} -s {source} -j {self.names.external}" for source in sources]
        # A rule without a target: documentation for whoever reads the chain.
        rules.append(f"-A {chain} {comment(f'other traffic to {self.name} will be dropped by {PROXY_FIREWALL}')}")
        return Chain(chain, tuple(rules))

    def _balancing_chain(self, chain: str, destinations: list[Destination]) -> Chain:
        rules: list[str] = []
        if chain == self._internal_chain:
            rules += self._cluster_ip_masquerade(chain)
        heads = [f"-A {chain} "] * len(destinations)
        if self.with_comments:
            heads = [f"-A {chain} {comment(f'{self.name} -> {each.endpoint}')} " for each in destinations]
        timeout_s = self.port.affinity_timeout_s
        if timeout_s:
            for head, (_, _, target) in zip(heads, destinations, strict=True):
                rules.append(f"{head}-m recent --name {target} --rcheck --seconds {timeout_s} --reap -j {target}")
        for left, head, (_, _, target) in zip(range(len(heads), 0, -1), heads, destinations, strict=True):
            rules.append(f"{head}{chance(left)}-j {target}")
        return Chain(chain, tuple(rules))

    def _cluster_ip_masquerade(self, chain: str) -> Iterator[str]:
        """For traffic to the ClusterIP alone: what comes through the external chain was decided there."""
        if self.cluster_ip is None or self.port.internal.outcome is not Outcome.FORWARD:
            return
        match: str | None = "" if self.settings.masquerade_all else is_not_local_match(self._detector)
        if match is not None:
            head = f"-A {chain} {comment(f'{self.name} cluster IP')} {self._match(self.cluster_ip)}"
            yield f"{head} {match}-j {MARK_MASQUERADE}"

    def _backend_chain(self, destination: Destination) -> Chain:
        address, endpoint, chain = destination
        text = self.backend_comment
        remember = f"-m recent --name {chain} --set " if self.port.affinity_timeout_s else ""
        hairpin = f"-A {chain} {text}-s {address} -j {MARK_MASQUERADE}"
        dnat = f"-A {chain} {text}{remember}{self.protocol} -j DNAT --to-destination {endpoint}"
        return Chain(chain, (hairpin, dnat))

    # -- parts of rules ----------------------------------------------------------------------------------------------

    @property
    def _internal_chain(self) -> str:
        return self.names.local if self.port.internal.view is View.LOCAL else self.names.cluster

    @property
    def _detector(self) -> LocalDetector | None:
        return self.settings.detectors.get(self.port.family)

    def _match(self, frontend: Frontend) -> str:
        return f"{self.protocol} -d {word(frontend.address or '')} --dport {frontend.port}"


@lru_cache(maxsize=1024)
def chance(left: int) -> str:
    """The match of the first of so many backends: the n-th one is asked only when those before it were not chosen."""
    return f"-m statistic --mode random --probability {1 / left:.10f} " if left > 1 else ""


def is_local_match(detector: LocalDetector | None) -> str | None:
    """The match for packets of pods, with a blank behind it; None when nothing is known to be one."""
    if detector is None:
        return None
    if detector.interface:
        return f"-i {word(detector.interface)} "
    return "" if _is_everything(detector) else f"-s {word(detector.cidr or '')} "


def is_not_local_match(detector: LocalDetector | None) -> str | None:
    """The opposite; None when no packet can match: then the rule is left out."""
    return None if detector is None or _is_everything(detector) else f"! {is_local_match(detector)}"


def _is_everything(detector: LocalDetector) -> bool:
    """A match on it would be no match: iptables-save drops it, and iptables-nft refuses its negation."""
    return detector.cidr is not None and detector.cidr.endswith("/0")
