"""`kbpf verify`: the kernel against what the source says, a line for each difference.

A sync may be under way while the kernel is read, so a difference counts when a second look finds it as well.
"""

import time
from collections.abc import Callable, Iterator

import msgspec
from msgspec.structs import replace

from kbpf.composition import standing_iptables_settings
from kbpf.config import Config, DatapathWish
from kbpf.datapath.ebpf import probe
from kbpf.datapath.ebpf import verify as rows_verify
from kbpf.datapath.ebpf.defer import DeferSettings, deferral, residue
from kbpf.datapath.ebpf.factory import netns_cookie
from kbpf.datapath.ebpf.found import Found
from kbpf.datapath.ebpf.node import NodeState, node_rows, says_apart, stand_apart
from kbpf.datapath.iptables import verify as rules_verify
from kbpf.ebpf_parts import NodeAddresses, find_uplinks, node_settings, serves_packets
from kbpf.host.udp_sockets import why_sockets_cannot_be_ended
from kbpf.model.address import Family
from kbpf.model.device import Device
from kbpf.model.table import FrontendKind, ResolvedPort, ServiceTable
from kbpf.questions.kernel import Kernel, read_kernel
from kbpf.questions.wanted import read_wanted
from kbpf.rendering import Decided

PAUSE_S = 1.0
LOOKS = 3


class Verified(msgspec.Struct, frozen=True):
    differences: tuple[str, ...]
    datapath: str
    services: int
    frontends: int


def verify(config: Config, pause: Callable[[float], None] = time.sleep) -> Verified:
    """Raises KbpfError when the source or the kernel cannot be read at all."""
    decided = read_wanted(config)
    kernel = read_kernel(config)
    found = tuple(differences(config, decided, kernel))
    for _ in range(LOOKS - 1):
        if not found:
            break
        pause(PAUSE_S)
        decided, kernel = read_wanted(config), read_kernel(config)
        again = frozenset(differences(config, decided, kernel))
        found = tuple(line for line in found if line in again)
    frontends = sum(len(decided.table.owned_frontends(port)) for port in decided.table)
    return Verified(found, kernel.datapath, len(decided.table.services), frontends)


def differences(config: Config, decided: Decided, kernel: Kernel) -> Iterator[str]:
    wished = config.datapath
    yield from kernel.notes
    if kernel.datapath == "none":
        yield "nothing is installed: neither the hooks nor the rules of kbpf are in force"
        return
    if wished is not DatapathWish.AUTO and wished.value != kernel.datapath:
        yield f"datapath: {kernel.datapath} is in force instead of {wished.value}"
    if kernel.datapath == "ebpf" and kernel.found is not None:
        yield from _ebpf_differences(config, decided, kernel, kernel.found)
    else:
        yield from _rule_differences(config, decided, decided.table, kernel)


def _ebpf_differences(config: Config, decided: Decided, kernel: Kernel, found: Found) -> Iterator[str]:
    devices = find_uplinks(config, decided.node) if serves_packets(config) else ()
    settings = DeferSettings(
        masquerade_all=config.masquerade_all,
        can_reject=probe.has_set_retval(),
        can_end_sockets=not why_sockets_cannot_be_ended(),
        serves_packets=bool(devices),
        spilled=rows_verify.spilled(found.rows, decided.table),
    )
    masquerades = bool(devices) and (_serves_external(decided.table, settings) or bool(found.rows.wanted))
    node = replace(node_settings(config, decided.node), netns_cookie=netns_cookie())
    addresses = NodeAddresses(config, decided.node)()
    # The programs may be left to find that out; they must not be told what is not so.
    apart = says_apart(found.rows) and stand_apart(found.rows.frontends, addresses)
    state = NodeState(addresses, masquerades=masquerades, stands_apart=apart)
    yield from _attachment_differences(kernel, devices)
    yield from rows_verify.differences(found.rows, decided.table, settings, node_rows(node, state))
    left = decided.table if config.rules_hold_all else left_to_rules(decided.table, settings)
    if left.services or masquerades:
        yield from _rule_differences(config, decided, left, kernel, is_residue=not config.rules_hold_all)
    else:
        for family, ruleset in kernel.rulesets.items():
            yield from rules_verify.remains(ruleset, family)


def _attachment_differences(kernel: Kernel, devices: tuple[Device, ...]) -> Iterator[str]:
    in_force = {(each.hook, each.place) for each in kernel.attachments if each.program_id is not None}
    for each in kernel.attachments:
        if each.program_id is None:
            yield f"programs: {each.hook} is not attached to {each.place}"
    places = {(hook.removesuffix("_raw"), place) for hook, place in in_force}
    for device in devices:
        for hook in ("tc_ingress", "tc_egress"):
            if (hook, device.name) not in places:
                yield f"programs: {hook} is not attached to {device.name}"


def _rule_differences(
    config: Config, decided: Decided, table: ServiceTable, kernel: Kernel, *, is_residue: bool = False
) -> Iterator[str]:
    settings = replace(standing_iptables_settings(config, decided.node), is_residue=is_residue)
    for family in Family:
        ruleset = kernel.rulesets.get(family)
        if ruleset is not None:
            yield from rules_verify.differences(table, settings, ruleset, family)
        elif any(port.family is family for port in table):
            yield f"iptables {family.value}: cannot be read"


def _serves_external(table: ServiceTable, settings: DeferSettings) -> bool:
    return any(
        frontend.kind is not FrontendKind.CLUSTER_IP and not deferral(port, frontend, settings).packets
        for port in table
        for frontend in table.owned_frontends(port)
    )


def left_to_rules(table: ServiceTable, settings: DeferSettings) -> ServiceTable:
    """The residue: only what eBPF defers."""
    left = ServiceTable()
    for service in list(table.services):
        ports: tuple[ResolvedPort, ...] = tuple(
            rest
            for port in table.ports_of(service)
            if (rest := residue(port, table.owned_frontends(port), settings)) is not None
        )
        if ports:
            left.replace(service, ports)
    return left
