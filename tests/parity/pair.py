"""Two nodes that look the same: on one runs the real kube-proxy, on the other kbpf, both with the same settings."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kbpf.demo.namespaces import Namespace
from tests.cluster.control_plane import ControlPlane
from tests.cluster.namespaces import Relay, create_node
from tests.cluster.programs import Program
from tests.cluster.proxies import iptables_programs, start_kbpf, start_kube_proxy
from tests.parity import rules
from tests.parity.marker import shows
from tests.parity.node import ADDRESSES, FLAGS

FAMILIES = tuple(rules.COMMANDS)
SETTLE_TIMEOUT_S = 30


@dataclass(frozen=True, slots=True)
class Setting:
    """Flags that both proxies are given besides those of the node, or instead of them; None leaves one out."""

    name: str
    flags: Mapping[str, str | None] = field(default_factory=dict)
    sysctls: Mapping[str, str] = field(default_factory=dict)
    """Of the nodes, as both find them when they start."""
    backend: str = ""
    """"nft" or "legacy" when it is not to be the machine's choice."""
    reads_manifests: bool = False
    """kbpf takes the objects from a file, not from the API server."""

    @property
    def arguments(self) -> list[str]:
        return [f"--{name}={value}" for name, value in (FLAGS | self.flags).items() if value is not None]


class Pair:
    """Its namespaces are removed by their tag; `stop` ends the programs and the relays."""

    def __init__(self, tag: str, setting: Setting, control_plane: ControlPlane, manifests: Path, folder: Path) -> None:
        self.setting, self.control_plane, self.manifests, self.folder = setting, control_plane, manifests, folder
        self.programs: list[tuple[Program, Namespace]] = []
        self.control_node, self.own_node = (create_node(f"{tag}-{side}", ADDRESSES) for side in ("a", "b"))
        self.relays = {node: Relay(node, control_plane.port) for node in (self.control_node, self.own_node)}
        for node in self.relays:
            self._write_sysctls(node)

    def start(self) -> None:
        kubeconfig, own_kubeconfig = (
            self.control_plane.kubeconfig(self.relays[node].port) for node in (self.control_node, self.own_node)
        )
        flags, backend = self.setting.arguments, self.setting.backend
        path = iptables_programs(self.folder, backend) if backend else None
        control = start_kube_proxy(self._log("kube-proxy"), self.control_node.name, kubeconfig, flags, path=path)
        self.programs.append((control, self.control_node))
        own_flags = [*flags, f"--iptables-backend={backend}"] if backend else flags
        feed = self.manifests if self.setting.reads_manifests else own_kubeconfig
        own = start_kbpf(self._log("kbpf"), self.own_node.name, feed, own_flags)
        self.programs.append((own, self.own_node))

    def stop_programs(self) -> None:
        for program, _ in self.programs:
            program.stop()
        self.programs.clear()

    def change_places(self) -> None:
        """The next start finds each on the node of the other, and what that one has left there."""
        self.control_node, self.own_node = self.own_node, self.control_node

    def stop(self) -> None:
        self.stop_programs()
        for relay in self.relays.values():
            relay.stop()

    def read(self, family: str) -> tuple[rules.Ruleset, rules.Ruleset]:
        """The rules of kube-proxy and those of kbpf."""
        return self._read(self.control_node, family), self._read(self.own_node, family)

    def wait_for(self, step: int) -> None:
        """Until both have synced the step."""
        for program, node in self.programs:
            for family in FAMILIES:
                program.wait_until(
                    lambda node=node, family=family: shows(self._read(node, family), family, step),  # type: ignore[misc]
                    f"{family} rules of step {step} with {self.setting.name}",
                    timeout_s=SETTLE_TIMEOUT_S,
                )

    def _read(self, node: Namespace, family: str) -> rules.Ruleset:
        return rules.read(node.name, family, self.setting.backend)

    def _write_sysctls(self, node: Namespace) -> None:
        for name, value in self.setting.sysctls.items():
            with node.entered():
                Path("/proc/sys", *name.split(".")).write_text(value)

    def _log(self, name: str) -> Path:
        return self.folder / f"{self.setting.name.replace(' ', '-')}-{name}.log"
