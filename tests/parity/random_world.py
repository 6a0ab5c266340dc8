"""A random set of objects, and a random sequence of edits to it. The same seed gives the same, on every machine.

`World.objects` and `World.zone`, that of the node, are what there must be now; `edit` changes it. Who applies it to an
API server finds out the difference.
"""

from collections.abc import Callable
from random import Random

from tests.cluster.api import Key, Tree, key_of
from tests.parity.random_services import Numbers, external_name_service, headless_service, random_service
from tests.parity.random_slices import changed_endpoint, random_slices, without_ambiguity, without_endpoint

NAMESPACES = ("shop", "media")
NAMES = ("web", "api", "db", "cache", "mail", "x-1")
SERVICE_NAME = "kubernetes.io/service-name"


class World:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.numbers = Numbers(self.random, seed % 2)
        self.objects: dict[Key, Tree] = {}
        self.zone = "za"
        for _ in range(self.random.randint(3, 8)):
            self._add_service()
        if self.random.random() < 0.3:
            self._keep(headless_service("shop", "headless"))
        if self.random.random() < 0.3:
            self._keep(external_name_service("shop", "elsewhere"))

    def edit(self) -> str:
        """Change one to three things; answers with what they were."""
        edits: list[Callable[[], str]] = [
            self._add_service,
            self._replace_service,
            self._delete_service,
            self._replace_slices,
            self._delete_slices,
            self._change_endpoint,
            self._change_endpoint,
            self._remove_endpoint,
            self._annotate,
            self._hand_over_label,
            self._move_node,
        ]
        return ", ".join(self.random.choice(edits)() for _ in range(self.random.choice([1, 1, 2, 3])))

    def _keep(self, *trees: Tree) -> None:
        self.objects |= {key_of(tree): tree for tree in trees}

    def _drop(self, *trees: Tree) -> None:
        for tree in trees:
            del self.objects[key_of(tree)]

    def _of_kind(self, kind: str) -> list[Tree]:
        return [tree for key, tree in sorted(self.objects.items()) if key.kind == kind]

    def _a_service(self) -> Tree | None:
        found = [tree for tree in self._of_kind("Service") if tree["spec"].get("clusterIPs")]
        return self.random.choice(found) if found else None

    def _slices_of(self, service: Tree) -> list[Tree]:
        metadata = service["metadata"]
        return [
            tree
            for tree in self._of_kind("EndpointSlice")
            if tree["metadata"]["namespace"] == metadata["namespace"]
            and tree["metadata"]["labels"][SERVICE_NAME] == metadata["name"]
        ]

    def _add_service(self) -> str:
        namespace, name = self.random.choice(NAMESPACES), self.random.choice(NAMES)
        old = self.objects.get(Key("Service", namespace, name))
        service = random_service(self.random, self.numbers, namespace, name, old)
        self._keep(service)
        if not self._slices_of(service):
            self._keep(*random_slices(self.random, service))
        return f"put {namespace}/{name}"

    def _replace_service(self) -> str:
        old = self._a_service()
        if old is None:
            return self._add_service()
        metadata = old["metadata"]
        self._keep(random_service(self.random, self.numbers, metadata["namespace"], metadata["name"], old))
        return f"replaced {metadata['namespace']}/{metadata['name']}"

    def _delete_service(self) -> str:
        """Its slices stay half of the time, as they do for a moment in a cluster."""
        service = self._a_service()
        if service is None:
            return self._add_service()
        slices = self._slices_of(service) if self.random.random() < 0.5 else []
        self._drop(service, *slices)
        return f"deleted {service['metadata']['namespace']}/{service['metadata']['name']}"

    def _delete_slices(self) -> str:
        service = self._a_service()
        if service is None:
            return self._add_service()
        self._drop(*self._slices_of(service))
        return f"deleted the slices of {service['metadata']['name']}"

    def _replace_slices(self) -> str:
        service = self._a_service()
        if service is None:
            return self._add_service()
        self._drop(*self._slices_of(service))
        self._keep(*random_slices(self.random, service))
        return f"replaced the slices of {service['metadata']['name']}"

    def _change_endpoint(self) -> str:
        return self._change_a_slice(changed_endpoint, "changed an endpoint")

    def _remove_endpoint(self) -> str:
        return self._change_a_slice(without_endpoint, "removed an endpoint")

    def _change_a_slice(self, change: Callable[[Random, Tree], Tree], what: str) -> str:
        service = self._a_service()
        slices = self._slices_of(service) if service else []
        if not slices:
            return self._add_service()
        number = self.random.randrange(len(slices))
        slices[number] = change(self.random, slices[number])
        self._keep(*without_ambiguity(slices))
        return f"{what} of {slices[number]['metadata']['name']}"

    def _annotate(self) -> str:
        service = self._a_service()
        if service is None:
            return self._add_service()
        metadata = service["metadata"] | {"annotations": {"note": str(self.random.random())}}
        self._keep(service | {"metadata": metadata})
        return f"annotated {metadata['name']}"

    def _move_node(self) -> str:
        self.zone = self.random.choice(["za", "zb", "zc", ""])
        return f"the node is in zone {self.zone!r}"

    def _hand_over_label(self) -> str:
        """Give a Service to another proxy, or take it back."""
        service = self._a_service()
        if service is None:
            return self._add_service()
        label = "service.kubernetes.io/service-proxy-name"
        labels = {} if label in service["metadata"].get("labels", {}) else {label: "other"}
        self._keep(service | {"metadata": service["metadata"] | {"labels": labels}})
        return f"labelled {service['metadata']['name']} {labels}"
