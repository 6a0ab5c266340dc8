"""What is worth an Event in the cluster, in the words that `kubectl describe node` shows. Pure.

Reasons and actions are kube-proxy's where it has the event.
"""

from typing import NamedTuple

from kbpf.model.names import ServiceName
from kbpf.model.problem import Problem

MAX_NOTE = 1024
"""What the API takes."""


class Subject(NamedTuple):
    """`namespace` is empty for a Node."""

    kind: str
    name: str
    namespace: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


class Notice(NamedTuple):
    subject: Subject
    reason: str
    action: str
    note: str = ""
    is_warning: bool = True


def starting(node: str) -> Notice:
    return Notice(Subject("Node", node), "Starting", "StartKubeProxy", is_warning=False)


def fell_back(node: str, reason: str) -> Notice:
    note = f"iptables balances Services instead of eBPF: {reason}"
    return Notice(Subject("Node", node), "EbpfUnavailable", "FallBack", note[:MAX_NOTE])


def address_taken(node: str, server: str, reason: str) -> Notice:
    """`server` is "health" or "metrics"."""
    reasons = {"health": "FailedToStartProxierHealthcheck", "metrics": "FailedToStartMetricServer"}
    return Notice(Subject("Node", node), reasons[server], "StartKubeProxy", reason[:MAX_NOTE])


def conntrack_read_only(node: str, words: str) -> Notice:
    note = f"connection tracking is left as the system has it: {words}"
    return Notice(Subject("Node", node), "ConntrackReadOnly", "TuneConntrack", note[:MAX_NOTE])


def health_port_taken(node: str, service: ServiceName, port: int, reason: str) -> Notice:
    subject = Subject("Service", service.name, service.namespace)
    note = f'node {node} failed to start healthcheck "{service}" on port {port}: {reason}'
    return Notice(subject, "FailedToStartServiceHealthcheck", "Listen", note[:MAX_NOTE])


def problem(node: str, found: Problem) -> Notice | None:
    """Of a Service or EndpointSlice; None of an object that has no name to hang an Event on."""
    kind, _, full_name = found.subject.partition(" ")
    namespace, _, name = full_name.partition("/")
    if not name:
        return None
    note = f"node {node}: {found.field}: {found.value}: {found.action}"
    return Notice(Subject(kind, name, namespace), "InvalidField", "Resolve", note[:MAX_NOTE])
