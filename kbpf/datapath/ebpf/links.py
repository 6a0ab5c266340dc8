"""Attachments: one bpf_link for each hook, pinned, on one cgroup beside whatever others attached there.

`attach` makes true what is asked and changes nothing that is already so: a pinned link is kept, gets the new program in
one step that no connect can miss, or is made anew when its cgroup was removed. Only `attach` and `detach` here decide
whether traffic meets the programs; call `attach` after the maps are complete and the self-test has passed.
"""

import errno
import os
from collections.abc import Container, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from kbpf.datapath.ebpf import libbpf
from kbpf.datapath.ebpf.filesystem import cgroup_id
from kbpf.datapath.ebpf.hooks import HOOKS, NODE_PORT_HOOKS, Hook
from kbpf.datapath.ebpf.pins import Pins
from kbpf.errors import LoadFailed


class Attached(msgspec.Struct, frozen=True):
    """What `attach` did, by hook names."""

    created: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()

    @property
    def changed(self) -> int:
        return len(self.created) + len(self.updated)


@contextmanager
def closing(fd: int) -> Iterator[int]:
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def open_cgroup(path: Path) -> Iterator[int]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise LoadFailed(f"cannot open the cgroup {path}: {error.strerror}") from error
    with closing(fd):
        yield fd


def attach(pins: Pins, programs: Path, cgroup: Path) -> Attached:
    """Run the programs pinned in `programs` for every socket below `cgroup`."""
    did: dict[str, list[str]] = {"created": [], "updated": [], "kept": []}
    with open_cgroup(cgroup) as cgroup_fd:
        for hook in hooks_of(programs):
            with closing(open_program(programs / hook.name)) as program_fd:
                did[_attach_hook(pins.link(hook.name), hook, program_fd, cgroup_fd, cgroup)].append(hook.name)
    _detach_except(pins, hooks_of(programs))
    return Attached(*map(tuple, did.values()))


def hooks_of(programs: Path) -> tuple[Hook, ...]:
    """Those for which there are programs: some are built only where they are asked for."""
    return HOOKS + tuple(hook for hook in NODE_PORT_HOOKS if (programs / hook.name).exists())


def _detach_except(pins: Pins, wanted: tuple[Hook, ...]) -> None:
    for hook in NODE_PORT_HOOKS:
        if hook not in wanted and (link_fd := open_link(pins.link(hook.name))) is not None:
            with closing(link_fd):
                remove_link(pins.link(hook.name), link_fd)


def _attach_hook(pin: Path, hook: Hook, program_fd: int, cgroup_fd: int, cgroup: Path) -> str:
    link_fd = open_link(pin)
    if link_fd is None:
        _create(pin, hook, program_fd, cgroup_fd, cgroup)
        return "created"
    with closing(link_fd):
        info = libbpf.link_info(link_fd)
        if not _is_on(info, hook, cgroup):
            remove_link(pin, link_fd)
            _create(pin, hook, program_fd, cgroup_fd, cgroup)
            return "created"
        if info.program_id == libbpf.program_info(program_fd).id:
            return "kept"
        try:
            libbpf.link_update(link_fd, program_fd)
        except OSError as error:
            raise LoadFailed(f"{hook.name}: cannot replace the program on {cgroup}: {error.strerror}") from error
        return "updated"


def _create(pin: Path, hook: Hook, program_fd: int, cgroup_fd: int, cgroup: Path) -> None:
    try:
        with closing(libbpf.link_create(program_fd, cgroup_fd, hook.attach_type)) as link_fd:
            libbpf.obj_pin(link_fd, pin)
    except OSError as error:
        hint = ": another program holds the hook alone" if error.errno == errno.EPERM else ""
        raise LoadFailed(f"{hook.name}: cannot attach to {cgroup}: {error.strerror}{hint}") from error


def attach_unpinned(programs: Path, cgroup: Path) -> list[int]:
    """Links that live as long as the file descriptors returned: for a scratch cgroup."""
    links: list[int] = []
    try:
        with open_cgroup(cgroup) as cgroup_fd:
            for hook in HOOKS:
                with closing(open_program(programs / hook.name)) as program_fd:
                    links.append(libbpf.link_create(program_fd, cgroup_fd, hook.attach_type))
    except OSError as error:
        detach_unpinned(links)
        raise LoadFailed(f"cannot attach to {cgroup}: {error.strerror}") from error
    return links


def detach_unpinned(links: list[int]) -> None:
    for link_fd in links:
        os.close(link_fd)


def attached(pins: Pins, cgroup: Path) -> dict[str, int]:
    """Our programs in force on this very cgroup: their kernel ids by hook name."""
    found = {}
    for hook in HOOKS + NODE_PORT_HOOKS:
        link_fd = open_link(pins.link(hook.name))
        if link_fd is None:
            continue
        with closing(link_fd):
            info = libbpf.link_info(link_fd)
        if _is_on(info, hook, cgroup):
            found[hook.name] = info.program_id
    return found


def _is_on(info: libbpf.LinkInfo, hook: Hook, cgroup: Path) -> bool:
    return (info.cgroup_id, info.attach_type) == (cgroup_id(cgroup), hook.attach_type)


def program_ids(programs: Path) -> dict[str, int]:
    """The kernel's ids of pinned programs, to compare with those `attached`."""
    found = {}
    for hook in hooks_of(programs):
        with closing(open_program(programs / hook.name)) as program_fd:
            found[hook.name] = libbpf.program_info(program_fd).id
    return found


def detach(folder: Path, names: Container[str] | None = None) -> None:
    """Take the links pinned in `folder` out of force, all or those with these names."""
    for pin in sorted(folder.iterdir()) if folder.exists() else ():
        if names is not None and pin.name not in names:
            continue
        link_fd = open_link(pin)
        if link_fd is not None:
            with closing(link_fd):
                remove_link(pin, link_fd)


def remove_link(pin: Path, link_fd: int) -> None:
    # Unpinning alone detaches too, but some time later, from a kernel thread.
    libbpf.link_detach(link_fd)
    pin.unlink(missing_ok=True)


def open_program(pin: Path) -> int:
    try:
        return libbpf.obj_get(pin)
    except OSError as error:
        raise LoadFailed(f"cannot open the program {pin}: {error.strerror}") from error


def open_link(pin: Path) -> int | None:
    try:
        return libbpf.obj_get(pin)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LoadFailed(f"cannot open the link {pin}: {error.strerror}") from error
