"""From objects as the API server sends them to events: only what is new, and bad objects told once. Pure.

The reflector hands over every object of a list or a watch, and is told when a list begins and is complete.
"""

import msgspec

from kbpf.model.events import Event
from kbpf.source.api.decode import read_object
from kbpf.source.api.inventory import Inventory
from kbpf.source.api.news import News
from kbpf.source.api.resource import Resource
from kbpf.source.object_key import event_of


class Intake:
    def __init__(self, resource: Resource, news: News) -> None:
        self._resource = resource
        self._news = news
        self._inventory = Inventory()

    def begin_list(self) -> None:
        self._inventory.begin_list()

    def end_list(self) -> list[Event]:
        """The deletions that nobody was told of."""
        return [event_of(key, None) for key in self._inventory.end_list()]

    def take(self, raw: msgspec.Raw, *, is_deletion: bool = False) -> tuple[str, list[Event]]:
        """The version of the object, and the event it makes, if any. Of a deleted one only the name matters."""
        key, version, now, problem = read_object(self._resource, raw)
        if key is None:
            self._news.problem(None, problem)
            return version, []
        if is_deletion:
            self._news.no_problem(key)
            return version, [event_of(key, None)] if self._inventory.remove(key) else []
        if now is None:
            self._news.problem(key, problem)
            self._inventory.keep(key)
            return version, []
        self._news.no_problem(key)
        return version, [event_of(key, now)] if self._inventory.put(key, now) else []
