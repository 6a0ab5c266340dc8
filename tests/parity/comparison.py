"""The real kube-proxy and kbpf side by side: one API server, and for each setting a pair of nodes that see the same.

`Comparison.show(objects)` makes exactly these objects exist, waits until every proxy has them in its rules, and
`differences` says what the rules of a pair do not have in common. kbpf reads a manifest that holds the objects as the
API server answered them, defaults and all.
"""

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

from kbpf.demo.namespaces import Namespace
from kbpf.demo.remains import remove
from tests.cluster.api import Tree
from tests.cluster.contents import Contents
from tests.cluster.control_plane import ControlPlane
from tests.cluster.namespaces import Relay, create_node
from tests.cluster.programs import Program
from tests.cluster.proxies import start_kbpf, start_kube_proxy
from tests.conftest import RUN
from tests.parity import rules
from tests.parity.marker import marker, shows
from tests.parity.node import ADDRESSES, FLAGS, NODE

FAMILIES = tuple(rules.COMMANDS)
SETTLE_TIMEOUT_S = 30
# After both have synced the step, the last of their transactions may still be on its way.
AGREE_TIMEOUT_S = 5

View = Callable[[rules.Ruleset], rules.Ruleset]


def complete(ruleset: rules.Ruleset) -> rules.Ruleset:
    return ruleset


class Different(AssertionError):
    """kbpf has written something else than kube-proxy; the message has a line for each chain or rule."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Flags that both proxies are given besides those of the node, or instead of them; None leaves one out."""

    name: str
    flags: Mapping[str, str | None] = field(default_factory=dict)
    sysctls: Mapping[str, str] = field(default_factory=dict)
    """Of the nodes, as both find them when they start."""
    backend: str = ""
    """"nft" or "legacy" when it is not to be the machine's choice."""


@dataclass(frozen=True, slots=True)
class Pair:
    setting: Setting
    control_node: Namespace
    control: Program
    own_node: Namespace
    own: Program

    def read(self, family: str) -> tuple[rules.Ruleset, rules.Ruleset]:
        """The rules of kube-proxy and those of kbpf."""
        backend = self.setting.backend
        return rules.read(self.control_node.name, family, backend), rules.read(self.own_node.name, family, backend)

    def wait_for(self, step: int) -> None:
        """Until both have synced the step."""
        for program, node in ((self.control, self.control_node), (self.own, self.own_node)):
            for family in FAMILIES:
                program.wait_until(
                    lambda node=node, family=family: shows(  # type: ignore[misc]
                        rules.read(node.name, family, self.setting.backend), family, step
                    ),
                    f"{family} rules of step {step} with {self.setting.name}",
                    timeout_s=SETTLE_TIMEOUT_S,
                )


class Comparison:
    def __init__(self, folder: Path, settings: Iterable[Setting]) -> None:
        self.folder, self.step = folder, 0
        self.tag = f"{RUN}{os.environ.get('PYTEST_XDIST_WORKER', '')}parity"
        self.manifests = folder / "manifests"
        self.manifests.mkdir()
        self.undo = ExitStack()
        self.undo.callback(remove, self.tag)
        self.control_plane = ControlPlane(folder)
        self.undo.callback(self.control_plane.stop)
        self.pairs: list[Pair] = []
        try:
            self.contents = Contents(self.control_plane.api)
            self.show([])
            for setting in settings:
                self.pairs.append(self._start(setting))
        except BaseException:
            self.stop()
            raise

    def show(self, objects: Iterable[Tree], node: Tree = NODE) -> None:
        """Make exactly these exist, and the node be so."""
        self.step += 1
        self.contents.show([*objects, node], last=marker(self.step))
        self._write_manifest()

    def check(self, what: str = "", view: View = complete) -> None:
        """Raises Different when a pair does not have the same rules for the last step, of which `what` tells.

        `view` leaves out of both what is not to be compared.
        """
        if found := self.differences(view):
            raise Different("\n".join(filter(None, [what, *found])))

    def differences(self, view: View = complete) -> list[str]:
        """Between the two of each pair, once they have settled; empty when they are equal."""
        for pair in self.pairs:
            pair.wait_for(self.step)
        return [line for pair in self.pairs for family in FAMILIES for line in self._settled(pair, family, view)]

    def stop(self) -> None:
        self.undo.close()

    def _settled(self, pair: Pair, family: str, view: View) -> list[str]:
        deadline = time.monotonic() + AGREE_TIMEOUT_S
        while (found := rules.differences(*map(view, pair.read(family)))) and time.monotonic() < deadline:
            time.sleep(0.1)
        return [f"{pair.setting.name}, {family}: {line}" for line in found]

    def _write_manifest(self) -> None:
        """In one step: a reader sees the old objects or the new ones."""
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(self.contents.answers.values())})
        unfinished = self.folder / "manifest.unfinished"
        unfinished.write_text(text)
        unfinished.replace(self.manifests / "objects.json")

    def _start(self, setting: Setting) -> Pair:
        tag = f"{self.tag}-{len(self.pairs)}"
        flags = [f"--{name}={value}" for name, value in (FLAGS | setting.flags).items() if value is not None]
        nodes = [create_node(f"{tag}-{side}", ADDRESSES) for side in ("control", "own")]
        for node, (name, value) in product(nodes, setting.sysctls.items()):
            with node.entered():
                Path("/proc/sys", *name.split(".")).write_text(value)
        relay = Relay(nodes[0], self.control_plane.port)
        self.undo.callback(relay.stop)
        kubeconfig = self.control_plane.kubeconfig(relay.port)
        control = start_kube_proxy(self._log(setting, "kube-proxy"), nodes[0].name, kubeconfig, flags)
        self.undo.callback(control.stop)
        own = start_kbpf(self._log(setting, "kbpf"), nodes[1].name, self.manifests, flags)
        self.undo.callback(own.stop)
        return Pair(setting, nodes[0], control, nodes[1], own)

    def _log(self, setting: Setting, name: str) -> Path:
        return self.folder / f"{setting.name.replace(' ', '-')}-{name}.log"
