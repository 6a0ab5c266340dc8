"""A running kbpf on a node of the demo or of a test: a process in the node's namespace and cgroup.

It is the product's own entry point, started from outside as an operator would, and it is watched from outside: by its
health endpoint, by the sync sentences in its log, and by its exit status.
"""

import http.client
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from kbpf.demo.cgroups import join
from kbpf.demo.node import Node
from kbpf.demo.patience import patient
from kbpf.errors import CommandFailed, KbpfError

HEALTHZ_PORT = 10256
PATIENCE_S = 60.0
COMMAND = (sys.executable, "-m", "kbpf")
_SYNC_SENTENCE = re.compile(r" of \d+ services: (\d+) writes")


class Proxy:
    """Runs from `start()` until `terminate()` or `kill()`, and may start again. Without manifests, `options` name an
    API server."""

    def __init__(self, node: Node, manifests: Path | None, log: Path, *options: str) -> None:
        self.node, self.manifests, self.log = node, manifests, log
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self._syncs_before_start = 0

    def start(self) -> None:
        self._syncs_before_start = len(self.syncs())
        source = ("--manifests", str(self.manifests)) if self.manifests else ()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command(*source, "--hostname-override", self.node.name, *self._options),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        join(self.node.cgroup / "host", self._process.pid)

    @property
    def pid(self) -> int:
        """Of the running process."""
        if self._process is None:
            raise KbpfError("kbpf does not run")
        return self._process.pid

    def wait_until_healthy(self, timeout_s: float = PATIENCE_S) -> None:
        """Until the first complete sync is done and told: the log hears of it a moment after the health does."""
        deadline = time.monotonic() + patient(timeout_s)
        while self.health() != http.client.OK:
            self._check(deadline, f"is not healthy after {patient(timeout_s):.0f} s")
            time.sleep(0.02)
        self.wait_for_sync(self._syncs_before_start, timeout_s)

    def wait_for_sync(self, syncs: int, timeout_s: float = PATIENCE_S) -> None:
        """Until the log tells of more than `syncs` syncs: count them before you cause one."""
        deadline = time.monotonic() + patient(timeout_s)
        while len(self.syncs()) <= syncs:
            self._check(deadline, f"has not synced within {patient(timeout_s):.0f} s")
            time.sleep(0.02)

    def health(self) -> int | None:
        """The status of /healthz, None while nobody listens."""
        connection = http.client.HTTPConnection("127.0.0.1", HEALTHZ_PORT, timeout=patient(2))
        try:
            with self.node.namespace.entered():
                connection.connect()
            connection.request("GET", "/healthz")
            response = connection.getresponse()
            response.read()
            return response.status
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()

    def syncs(self) -> list[int]:
        """How much each sync so far wrote to the kernel, over all starts of this proxy."""
        return [int(writes) for writes in _SYNC_SENTENCE.findall(self._logged())]

    def terminate(self) -> int:
        """SIGTERM: rules and programs stay in place. The exit status; 0 when it was not running."""
        return self._end(signal.SIGTERM)

    def wait_until_ended(self, timeout_s: float = PATIENCE_S) -> int:
        """Until it ends by itself. The exit status."""
        if self._process is None:
            return 0
        process, self._process = self._process, None
        return process.wait(patient(timeout_s))

    def kill(self) -> None:
        """SIGKILL, as the kernel does when memory runs out."""
        self._end(signal.SIGKILL)

    def cleanup(self) -> None:
        """`kbpf cleanup`: remove from the kernel what a proxy left there."""
        done = subprocess.run(self._command(arguments=("cleanup",)), capture_output=True, text=True, check=False)
        if done.returncode:
            raise CommandFailed("kbpf cleanup", done.returncode, done.stderr)

    def last_words(self) -> str:
        lines = self._logged().splitlines()
        return lines[-1] if lines else "no log"

    def _logged(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def _command(self, *options: str, arguments: tuple[str, ...] = ()) -> list[str]:
        roots = ["--cgroup-root", str(self.node.cgroup), "--bpffs-root", str(self.node.bpffs)]
        return ["nsenter", f"--net={self.node.namespace.path}", *COMMAND, *arguments, *roots, *options]

    def _check(self, deadline: float, complaint: str) -> None:
        status = self._process.poll() if self._process else None
        if status is not None:
            raise KbpfError(f"kbpf ended with status {status}: {self.last_words()}")
        if time.monotonic() > deadline:
            raise KbpfError(f"kbpf {complaint}: {self.last_words()}")

    def _end(self, how: signal.Signals) -> int:
        if self._process is None:
            return 0
        process, self._process = self._process, None
        process.send_signal(how)
        try:
            return process.wait(patient(PATIENCE_S))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise KbpfError(
                f"kbpf did not end within {patient(PATIENCE_S):.0f} s of {how.name}: {self.last_words()}"
            ) from None
