"""What a scenario file may say; see ../README.md. Every struct refuses unknown keys, so a typo fails the suite.

`load` turns a file into a Scenario, or raises ScenarioError with the file, the step and what was wrong there. Objects
become API objects in objects.py, flows and expectations are parsed in flows.py.
"""

# ruff: noqa: N815  (the API's own spelling of field names)

from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
import yaml

from tests.scenarios.harness.flows import Expectation, Route, parse_expectation, parse_route

ENGINES = ("reference", "iptables-trace", "ebpf-trace", "iptables-kernel", "ebpf-kernel", "kube-proxy")
GROUPS: dict[str, tuple[str, ...]] = {
    "pure": ENGINES[:3],
    "kernel": ENGINES[3:],
    "iptables": ("iptables-trace", "iptables-kernel"),
    "ebpf": ("ebpf-trace", "ebpf-kernel"),
} | {engine: (engine,) for engine in ENGINES}

Step = TypeVar("Step")


class ScenarioError(Exception):
    """A scenario file that cannot be used: which file, which step, what is wrong."""


class Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of everything below."""


class ServicePortEntry(Strict, frozen=True, kw_only=True):
    name: str = ""
    protocol: str = "TCP"
    port: int
    nodePort: int = 0
    targetPort: int | str | None = None


class IngressEntry(Strict, frozen=True, kw_only=True):
    ip: str | None = None
    ipMode: str | None = None
    hostname: str | None = None


class ServiceEntry(Strict, frozen=True, kw_only=True):
    ns: str
    name: str
    type: str = "ClusterIP"
    clusterIP: str | None = None
    clusterIPs: list[str] | None = None
    ipFamilies: list[str] | None = None
    ports: list[ServicePortEntry]
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    externalName: str | None = None
    externalIPs: list[str] = []
    lbIngress: list[str | IngressEntry] = []
    sessionAffinity: Literal["None", "ClientIP"] = "None"
    affinityTimeout: int | None = None
    externalTrafficPolicy: Literal["Cluster", "Local"] | None = None
    internalTrafficPolicy: Literal["Cluster", "Local"] | None = None
    healthCheckNodePort: int | None = None
    loadBalancerSourceRanges: list[str] = []
    publishNotReadyAddresses: bool = False


class SlicePortEntry(Strict, frozen=True, kw_only=True):
    name: str = ""
    protocol: str = "TCP"
    port: int | None


class EndpointEntry(Strict, frozen=True, kw_only=True):
    ip: str
    node: str | None = None
    zone: str | None = None
    hints: list[str] = []
    """Zones (hints.forZones)."""
    nodeHints: list[str] = []
    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class SliceEntry(Strict, frozen=True, kw_only=True):
    service: str
    name: str | None = None
    family: Literal["IPv4", "IPv6"] = "IPv4"
    labels: dict[str, str] = {}
    ports: list[SlicePortEntry]
    endpoints: list[EndpointEntry] = []
    endpointsGenerated: int = 0


class NodeEntry(Strict, frozen=True, kw_only=True):
    """What may change about the node under test."""

    zone: str


class Objects(Strict, frozen=True, kw_only=True):
    """Flattened entries, and whole API objects where the short form cannot say it."""

    services: list[ServiceEntry] = []
    slices: list[SliceEntry] = []
    objects: list[dict[str, Any]] = []
    node: NodeEntry | None = None


class Names(Strict, frozen=True, kw_only=True):
    """`namespace/name` each."""

    services: list[str] = []
    slices: list[str] = []


class BaseStep(Strict, frozen=True, kw_only=True):
    note: str = ""
    """What the step shows, where the scenario's title does not say it; part of a failure's message."""
    skip: dict[str, str] = {}
    """Engine or group → why this step is not for it."""


class Apply(BaseStep, frozen=True, kw_only=True):
    """Add objects, or replace those of the same name."""

    apply: Objects


class Delete(BaseStep, frozen=True, kw_only=True):
    delete: Names


class Wait(BaseStep, frozen=True, kw_only=True):
    """Let real time pass, in seconds; the pure engines know no time."""

    wait: float


class FlowBase(BaseStep, frozen=True, kw_only=True):
    """The fields of a flow and its outcome, in the two little languages of flows.py."""

    flow: str
    expect: str | list[str]

    def __post_init__(self) -> None:
        parse_route(self.flow)
        self.wanted  # noqa: B018  (raises)

    @property
    def route(self) -> Route:
        return parse_route(self.flow)

    @property
    def wanted(self) -> Expectation:
        return parse_expectation(tuple(self.expect) if isinstance(self.expect, list) else self.expect)


class FlowStep(FlowBase, frozen=True, kw_only=True):
    count: int | None = None
    mode: Literal["connect", "sendto", "one-socket", "mapped"] = "connect"
    balance: Literal["even"] | None = None
    sticky: bool | str = False
    redrawn: str | None = None
    masquerade: bool | None = None


class Open(FlowBase, frozen=True, kw_only=True):
    """Open a connection (or a UDP socket) that later steps ping."""

    open: str
    mode: Literal["connect", "sendto", "mapped"] = "connect"


class Ping(BaseStep, frozen=True, kw_only=True):
    """`stays`: the same endpoint answers. `heals`: one of these answers, now or within two seconds."""

    ping: str
    expect: Literal["stays"] | None = None
    heals: list[str] | None = None

    @property
    def wanted(self) -> Expectation | None:
        return None if self.heals is None else parse_expectation(tuple(self.heals))


AnyStep = Apply | Delete | Wait | FlowStep | Open | Ping
# `open` steps have a flow as well, so `open` is looked for first.
STEPS: dict[str, type[AnyStep]] = {
    "open": Open,
    "ping": Ping,
    "flow": FlowStep,
    "apply": Apply,
    "delete": Delete,
    "wait": Wait,
}


class Header(Objects, frozen=True, kw_only=True):
    title: str
    why: str
    skip: dict[str, str] = {}
    """Engine or group → why the whole scenario is not for it."""
    steps: list[dict[str, Any]]


class Scenario(msgspec.Struct, frozen=True):
    name: str
    title: str
    skip: dict[str, str]
    """By engine."""
    initial: Objects
    steps: tuple[AnyStep, ...]

    def reason_to_skip(self, engine: str, step: AnyStep | None = None) -> str | None:
        return (self.skip if step is None else by_engine(step.skip)).get(engine)

    @property
    def states(self) -> list[Objects]:
        """Every set of objects that the scenario applies, in order."""
        return [self.initial, *(step.apply for step in self.steps if isinstance(step, Apply))]


def load(path: Path) -> Scenario:
    try:
        tree = yaml.load(path.read_text(), Loader=UniqueKeyLoader)  # noqa: S506  (a SafeLoader)
    except yaml.YAMLError as error:
        raise ScenarioError(f"{path.name}: {error}") from error
    header = _convert(tree, Header, path.name)
    if not header.title.strip() or not header.why.strip():
        raise ScenarioError(f"{path.name}: title and why must say something")
    steps = tuple(_step(step, f"{path.name}: step {number}") for number, step in enumerate(header.steps, 1))
    if not any(isinstance(step, FlowStep | Open) for step in steps):
        raise ScenarioError(f"{path.name}: no step has a flow, so nothing is shown")
    initial = Objects(services=header.services, slices=header.slices, objects=header.objects, node=header.node)
    _check_groups(header.skip, path.name)
    return Scenario(path.stem, header.title, by_engine(header.skip), initial, steps)


def by_engine(skip: dict[str, str]) -> dict[str, str]:
    return {engine: reason for group, reason in skip.items() for engine in GROUPS[group]}


def _step(step: dict[str, Any], where: str) -> AnyStep:
    kind = next((kind for key, kind in STEPS.items() if key in step), None)
    if kind is None:
        raise ScenarioError(f"{where}: none of {', '.join(STEPS)} in it")
    converted: AnyStep = _convert(step, kind, where)
    _check_groups(converted.skip, where)
    _check_sense(converted, where)
    return converted


def _check_sense(step: AnyStep, where: str) -> None:
    if isinstance(step, Ping) and (step.expect is None) == (step.heals is None):
        raise ScenarioError(f"{where}: a ping needs either `expect: stays` or `heals: [...]`")
    if isinstance(step, FlowStep):
        several = len(step.wanted.backends) > 1
        if not several and (step.balance or step.sticky or step.redrawn):
            raise ScenarioError(f"{where}: balance, sticky and redrawn need several endpoints to choose from")
        if step.balance and (step.sticky or step.mode == "one-socket"):
            raise ScenarioError(f"{where}: a flow cannot be balanced evenly and stay with one endpoint")
        if step.mode in ("sendto", "one-socket") and step.route.protocol != "UDP":
            raise ScenarioError(f"{where}: mode {step.mode} is for UDP")


def _check_groups(skip: dict[str, str], where: str) -> None:
    for group, reason in skip.items():
        if group not in GROUPS:
            raise ScenarioError(f"{where}: skip: {group!r} is no engine; there are {', '.join(GROUPS)}")
        if not reason.strip():
            raise ScenarioError(f"{where}: skip: {group}: say why")


def _convert(tree: Any, kind: type[Step], where: str) -> Step:
    try:
        return msgspec.convert(tree, kind)
    except msgspec.ValidationError as error:
        raise ScenarioError(f"{where}: {error}") from error


class UniqueKeyLoader(yaml.SafeLoader):
    """YAML's last key wins silently; here a key that stands twice is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    raise yaml.MarkedYAMLError(problem=f"key {key.value!r} stands twice", problem_mark=key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep)
