"""Every error that kbpf raises on purpose. A message says what was tried, what came back and what to do.

KbpfError
├── UsageError               a wrong option or configuration                       exit code 2
├── ManifestError            a manifest that cannot be read, with file and line
├── DatapathUnavailable      the wished datapath cannot run here, with the reason  exit code 3
├── NodeOwnedElsewhere       another service proxy owns this node                  exit code 4
├── RestartNeeded            what was decided at the start no longer holds; whoever runs us starts us anew
├── ApiFailure               the API server refused, broke off or is away; asked again later
│   └── ApiSilent            it is there, but nothing more came
├── HostError                conntrack, a sysctl or the addresses of this node: could not be read or written
└── DatapathError            a write to the kernel failed; the sync is retried
    ├── CommandFailed        a child process failed: command, exit status, its own words
    ├── RulesLocked          another program holds the lock of the rules; it will let go of it
    ├── LoadFailed           programs could not be compiled, loaded or attached
    └── MapError             a BPF map refused an operation
        └── MapFull          no room: names the map and its size
"""

from kbpf.model.address import Family


class KbpfError(Exception):
    """Base of all errors that reach the user as one line."""

    exit_code = 1


class UsageError(KbpfError):
    exit_code = 2


class ManifestError(KbpfError):
    exit_code = 2


class DatapathUnavailable(KbpfError):
    exit_code = 3


class NodeOwnedElsewhere(KbpfError):
    exit_code = 4


class RestartNeeded(KbpfError):
    pass


class ApiFailure(KbpfError):
    """`status` is the HTTP status where there was one; `retry_after_s` is what the server asked for."""

    def __init__(self, message: str, *, status: int | None = None, retry_after_s: float = 0.0) -> None:
        self.status, self.retry_after_s = status, retry_after_s
        super().__init__(message)


class ApiSilent(ApiFailure):
    pass


class HostError(KbpfError):
    """The node's own state could not be read or written."""


class DatapathError(KbpfError):
    """The kernel does not hold the wanted state; nothing was consumed and the next sync is a full one."""

    families: frozenset[Family] = frozenset(Family)
    """Those that were not written."""
    refused_rules = False
    """It was a restore of iptables that failed."""


class CommandFailed(DatapathError):
    """A child process ended with a status other than zero."""

    def __init__(self, command: str, status: int, stderr: str) -> None:
        self.command, self.status, self.stderr = command, status, stderr
        words = " ".join(stderr.split()) or "no message"
        super().__init__(f"{command}: exit status {status}: {words}")


class RulesLocked(DatapathError):
    """Nothing is wrong but the moment: trying again soon is enough."""


class LoadFailed(DatapathError):
    pass


class MapError(DatapathError):
    pass


class MapFull(MapError):
    pass
