"""The iptables programs: which of them this host has, how they are called, what their failures mean.

The only file of this datapath that starts processes, through a `Run` that tests replace. A `Tool` speaks for one IP
family and one flavour: nft and legacy are two rule sets in one kernel, and the wrong one of them goes unnoticed.
"""

import os
import re
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import Enum
from subprocess import PIPE
from typing import IO, NamedTuple, Protocol

import msgspec

from kbpf.datapath.iptables.ruleset import ChainKey
from kbpf.errors import CommandFailed, RulesLocked
from kbpf.model.address import Family

LOCK_WAIT_S = 5
TIMEOUT_S = 120.0
OLDEST_VERSION = (1, 6, 2)
"""The first whose restore waits for the lock; it also masquerades with --random-fully."""
STATUSES_GONE = (1, 3)
"""No such chain; no such table. Whatever else a program says proves neither."""
STATUS_TIMEOUT = 124
STATUS_NOT_EXECUTABLE = 126
STATUS_NOT_FOUND = 127
STATUS_RESOURCE_PROBLEM = 4
"""The lock is held, or the kernel is short of something: says nothing about the rules."""
LOCK_WORDS = "xtables lock"
"""In what the programs say when they waited for the lock in vain; the status alone has other reasons as well."""
CONTEXT_LINES = 3
MAX_CONTEXT_WIDTH = 160

_VERSION = re.compile(r"v(\d+(?:\.\d+)+)")
_FAILED_LINE = re.compile(r"line:? (\d+)")


class Completed(NamedTuple):
    status: int
    stdout: str
    stderr: str


class Run(Protocol):
    def __call__(self, argv: Sequence[str], stdin: str, timeout_s: float) -> Completed:
        """Run a program to its end; one that is missing or too slow is a status, not an exception."""
        ...


def run_process(argv: Sequence[str], stdin: str, timeout_s: float) -> Completed:
    # A daemon's PATH often lacks sbin; messages are compared, so they must not be translated.
    path = f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin"
    environment = {**os.environ, "PATH": path, "LC_ALL": "C"}
    try:
        with (
            subprocess.Popen(argv, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=environment) as process,
            _fed(process, stdin.encode()),
        ):
            stdout, stderr = process.communicate(timeout=timeout_s)
    except FileNotFoundError:
        return Completed(STATUS_NOT_FOUND, "", "no such program; it comes with the package iptables")
    except (OSError, RuntimeError) as error:  # RuntimeError: the system gives no thread more
        return Completed(STATUS_NOT_EXECUTABLE, "", str(error))
    except subprocess.TimeoutExpired:
        return Completed(STATUS_TIMEOUT, "", f"killed: not finished after {timeout_s:.0f} s")
    return Completed(process.returncode, stdout.decode(errors="replace"), stderr.decode(errors="replace"))


@contextmanager
def _fed(process: "subprocess.Popen[bytes]", content: bytes) -> Iterator[None]:
    """Meanwhile a thread writes `content` to the process, which is killed when this does not end well.

    `communicate` would write 4 KB at a time, with a select before each: 18 ms for 9 MB, and 30 more in a program that
    is woken for each. Not a file: where SELinux confines iptables, it may read its caller's pipes and no more; it would
    find an empty input, and say that all is well.
    """
    pipe = process.stdin
    assert pipe is not None  # noqa: S101  (it was asked for)
    feeder = threading.Thread(target=_feed, args=(pipe, content), name="feeder", daemon=True)
    try:
        feeder.start()
        process.stdin = None  # it is the thread's now, and `communicate` would close it
        yield
    except BaseException:
        process.kill()
        raise
    feeder.join()


def _feed(pipe: IO[bytes], content: bytes) -> None:
    with suppress(BrokenPipeError), pipe:  # one that has died says so by its status
        pipe.write(content)


class Flavour(Enum):
    """Where the rules live: in nf_tables, or in the older x_tables."""

    NFT = "nft"
    LEGACY = "legacy"


NFT_CHUNK_CHAINS = 600
"""iptables-nft needs time quadratic in the chains of one transaction: 52 s for 30,000, 2.4 s in chunks of this size."""


class Tool(msgspec.Struct, frozen=True):
    """The programs of one family and flavour; `name` is the stem, such as "iptables-nft"."""

    family: Family
    flavour: Flavour
    name: str
    version: tuple[int, ...]
    run: Run

    @property
    def chunk_chains(self) -> int | None:
        """How many chains one restore may carry; None: all, since the legacy tools copy the whole table each time."""
        return NFT_CHUNK_CHAINS if self.flavour is Flavour.NFT else None

    def save(self) -> str:
        """All tables, as iptables-save prints them."""
        return self._checked([f"{self.name}-save"])

    def save_counters(self) -> str:
        """The same with the counters of every rule in front."""
        return self._checked([f"{self.name}-save", "--counters"])

    def restore(self, text: str) -> None:
        """Apply a restore input; each of its tables is taken whole or not at all.

        Raises CommandFailed, or RulesLocked when another program kept the lock for all the time that we wait.
        """
        command = [f"{self.name}-restore", "-w", str(LOCK_WAIT_S), "--noflush", "--counters"]
        self._checked(command, text)

    def check_nat(self) -> None:
        """Raises CommandFailed when there is no table nat: the kernel or its modules lack this family.

        Raises RulesLocked when that cannot be told.
        """
        self._checked(self._command("-S", "POSTROUTING", "-t", "nat"))

    def lacks(self, chain: ChainKey) -> bool:
        """Whether the chain, or its whole table, is certainly gone. Raises RulesLocked when that cannot be told."""
        try:
            self._checked(self._command("-S", chain.name, "-t", chain.table.value))
        except CommandFailed as error:
            return error.status in STATUSES_GONE
        return False

    def _command(self, *arguments: str) -> list[str]:
        return [self.name, "-w", str(LOCK_WAIT_S), *arguments]

    def _checked(self, command: list[str], stdin: str = "") -> str:
        done = self.run(command, stdin, TIMEOUT_S)
        if done.status == STATUS_RESOURCE_PROBLEM and LOCK_WORDS in done.stderr:
            holder = "another program holds the lock of iptables"
            raise RulesLocked(f"{self.name}: {holder}, waited {LOCK_WAIT_S} s: {' '.join(done.stderr.split())}")
        if done.status != 0:
            raise CommandFailed(" ".join(command), done.status, with_context(done.stderr, stdin))
        return done.stdout


def with_context(stderr: str, text: str) -> str:
    """The programs name a line of their input, which nobody has: add it and its neighbours."""
    named = _FAILED_LINE.search(stderr)
    lines = text.splitlines()
    if named is None or not 0 < int(named[1]) <= len(lines):
        return stderr
    number = int(named[1])
    first = max(1, number - CONTEXT_LINES)
    shown = enumerate(lines[first - 1 : number + CONTEXT_LINES], first)
    context = " | ".join(f"{index}: {line[:MAX_CONTEXT_WIDTH]}" for index, line in shown)
    return f"{stderr.strip()} [input: {context}]"


def find_tools(run: Run, family: Family, wish: Flavour | None = None) -> tuple[dict[Flavour, Tool], tuple[str, ...]]:
    """What this host has for `family`, by flavour; and why a program that is there cannot be used.

    `wish`: look no further when it is there.
    """
    stem = "iptables" if family is Family.IPV4 else "ip6tables"
    tools: dict[Flavour, Tool] = {}
    refused: list[str] = []
    flavours = sorted(Flavour, key=lambda flavour: flavour is not wish)
    # Plain `iptables` is one of the two, and the only name on some hosts.
    for name in (*(f"{stem}-{flavour.value}" for flavour in flavours), stem):
        if wish in tools:
            break
        done = run([name, "--version"], "", TIMEOUT_S)
        if done.status == STATUS_NOT_FOUND:
            continue
        version = parse_version(done.stdout)
        if done.status != 0 or version is None:
            refused.append(f"{name} --version: exit status {done.status}: {(done.stdout + done.stderr).strip()!a:.80}")
        elif version < OLDEST_VERSION:
            wanted = ".".join(map(str, OLDEST_VERSION))
            refused.append(f"{name} is version {'.'.join(map(str, version))}; {wanted} or later is needed")
        else:
            flavour = Flavour.NFT if "nf_tables" in done.stdout else Flavour.LEGACY
            tools.setdefault(flavour, Tool(family, flavour, name, version, run))
    if not tools and not refused:
        refused.append(f"{stem}: no such program; it comes with the package iptables")
    return tools, tuple(refused)


def parse_version(text: str) -> tuple[int, ...] | None:
    """From "iptables v1.8.9 (nf_tables)"; vendors put more words behind the number."""
    found = _VERSION.search(text)
    return tuple(map(int, found[1].split("."))) if found else None
