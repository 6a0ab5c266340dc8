"""The real kube-proxy and kbpf side by side: one API server, and for each setting a pair of nodes that see the same.

`Comparison.show(objects)` makes exactly these objects exist, waits until every proxy has them in its rules, and
`differences` says what the rules of a pair do not have in common. Where kbpf is to read a manifest, that holds the
objects as the API server answered them, defaults and all.
"""

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path

from kbpf.demo.remains import remove
from tests.cluster.api import Tree
from tests.cluster.contents import Contents
from tests.cluster.control_plane import ControlPlane
from tests.conftest import RUN
from tests.parity import rules
from tests.parity.marker import marker
from tests.parity.node import NODE, node_in_zone
from tests.parity.pair import FAMILIES, Pair, Setting

# After both have synced the step, the last of their transactions may still be on its way.
AGREE_TIMEOUT_S = 5

View = Callable[[rules.Ruleset], rules.Ruleset]


def complete(ruleset: rules.Ruleset) -> rules.Ruleset:
    return ruleset


class Different(AssertionError):
    """kbpf has written something else than kube-proxy; the message has a line for each chain or rule."""


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
        self.compared: Counter[str] = Counter()
        """How much: steps, and rule sets of one setting and family."""
        try:
            self.contents = Contents(self.control_plane.api)
            self.show([])
            for setting in settings:
                self._add_pair(setting)
            self._move_node()
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
        self.compared += Counter({"steps": 1, "rule sets": len(self.pairs) * len(FAMILIES)})
        return [line for pair in self.pairs for family in FAMILIES for line in self._settled(pair, family, view)]

    def change_places(self, objects: Iterable[Tree]) -> None:
        """Each goes on where the other one was; what there is changes while none of them runs."""
        for pair in self.pairs:
            pair.stop_programs()
        self.show(objects)
        for pair in self.pairs:
            pair.change_places()
            pair.start()

    def stop(self) -> None:
        self.undo.close()

    def _add_pair(self, setting: Setting) -> None:
        tag = f"{self.tag}-{len(self.pairs)}"
        pair = Pair(tag, setting, self.control_plane, self.manifests, self.folder)
        self.undo.callback(pair.stop)
        pair.start()
        self.pairs.append(pair)

    def _move_node(self) -> None:
        """Out of its zone and back: a kube-proxy that hears of its Node before the parts that are to be told are known
        to each other never hears of that zone again, unless it changes. Seen where the machine is busy.
        """
        for node in (node_in_zone(""), NODE):
            self.show([], node)
            for pair in self.pairs:
                pair.wait_for(self.step)

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
