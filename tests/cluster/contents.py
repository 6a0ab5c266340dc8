"""What exists in an API server: exactly what a test asked for last, and what the server has made for itself.

What is as it was is not written again, and what the server would not let one change is deleted and made anew.
"""

from collections.abc import Iterable

from tests.cluster.api import Api, Key, Refused, Tree, key_of

# Whoever wants another one of these gets another object.
FIXED = ("clusterIPs", "ipFamilies", "healthCheckNodePort", "addressType")


class Contents:
    def __init__(self, api: Api) -> None:
        self.api = api
        self.answers: dict[Key, Tree] = {}
        """All objects, as the server keeps them."""
        self._asked: dict[Key, Tree] = {}
        # The server's own Service is there for every proxy to see.
        self._remember(api.list_of("Service"))

    def show(self, trees: Iterable[Tree], last: Iterable[Tree] = ()) -> None:
        """Make exactly these exist; `last` are written when all else is done. Raises Refused."""
        wanted = {key_of(tree): tree for tree in trees}
        finally_wanted = {key_of(tree): tree for tree in last}
        everything = wanted | finally_wanted
        self._delete(
            [
                key
                for key, tree in self._asked.items()
                if key not in everything or _must_be_made_anew(tree, everything[key])
            ]
        )
        self._put(wanted)
        self._put(finally_wanted)

    def _put(self, wanted: dict[Key, Tree]) -> None:
        new = {key: tree for key, tree in wanted.items() if self._asked.get(key) != tree}
        try:
            self._remember(self.api.put(new.values()))
        except Refused:
            # Others of them were accepted; the next step must find nothing that it does not know of.
            self._delete(list(new))
            raise
        self._asked |= new

    def _delete(self, keys: list[Key]) -> None:
        self.api.delete(keys)
        for key in keys:
            self._asked.pop(key, None)
            self.answers.pop(key, None)

    def _remember(self, answers: Iterable[Tree]) -> None:
        for tree in answers:
            tree["metadata"].pop("managedFields", None)
            self.answers[key_of(tree)] = tree


def _must_be_made_anew(old: Tree, new: Tree) -> bool:
    before, after = old.get("spec", old), new.get("spec", new)
    return any(before.get(name) and after.get(name) and before[name] != after[name] for name in FIXED)
