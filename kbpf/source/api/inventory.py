"""Which objects of one resource were delivered, and in what state, as a fingerprint of the fields that kbpf reads.

A list is compared with it: only differences are delivered, and what is missing in a complete list was deleted while
nobody listened. The objects themselves are not kept.
"""

import msgspec

from kbpf.source.object_key import Object, ObjectKey

ENCODER = msgspec.msgpack.Encoder()


class Inventory:
    def __init__(self) -> None:
        self._fingerprints: dict[ObjectKey, int] = {}
        self._unseen: set[ObjectKey] = set()

    def begin_list(self) -> None:
        """A list begins; one that did not get to its end is forgotten."""
        self._unseen = set(self._fingerprints)

    def end_list(self) -> list[ObjectKey]:
        """The list is complete. Returns what is gone."""
        gone = sorted(self._unseen, key=lambda key: (key.namespace, key.name))
        for key in gone:
            del self._fingerprints[key]
        self._unseen = set()
        return gone

    def put(self, key: ObjectKey, now: Object) -> bool:
        """It is there, in this state. True when that is news."""
        self._unseen.discard(key)
        fingerprint = hash(ENCODER.encode(now))
        if self._fingerprints.get(key) == fingerprint:
            return False
        self._fingerprints[key] = fingerprint
        return True

    def keep(self, key: ObjectKey) -> None:
        """It is there, but nobody can read it: its last good state stays."""
        self._unseen.discard(key)

    def remove(self, key: ObjectKey) -> bool:
        """It was deleted. True when that is news."""
        self._unseen.discard(key)
        return self._fingerprints.pop(key, None) is not None
