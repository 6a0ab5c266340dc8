"""Programs that run beside the tests: where the built ones are, how they start, and that they end with the tests.

`make cluster-tools` builds them; whoever needs one and does not find it is told so. Used by the control plane and by
the proxies under comparison.
"""

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

BUILD = Path(__file__).with_name("build.sh")
LOG_LINES_SHOWN = 30


class NotBuilt(Exception):
    """One of the compared programs is missing."""


class ProgramFailed(Exception):
    """A program ended, or did not become ready; the message ends with its last words."""


def built(name: str) -> Path:
    """The path of a program that `make cluster-tools` builds."""
    directory = subprocess.run([BUILD, "--directory"], capture_output=True, text=True, check=True).stdout.strip()
    path = Path(directory, name)
    if not path.exists():
        raise NotBuilt(f"{path} does not exist: `make cluster-tools` builds it")
    return path


class Program:
    """A child process with a log of its own. It is killed when the thread that started it ends, whatever happens."""

    def __init__(
        self,
        log: Path,
        arguments: Sequence[str | Path],
        *,
        namespace: str | None = None,
        search_first: Path | None = None,
    ) -> None:
        self.log = log
        """`search_first`: a folder put before the others of PATH, for this program and its children."""
        environment = dict(os.environ)
        if search_first is not None:
            environment["PATH"] = f"{search_first}:{environment['PATH']}"
        entered = [] if namespace is None else ["nsenter", f"--net=/run/netns/{namespace}"]
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [*entered, "setpriv", "--pdeathsig=KILL", "--", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
            )

    def check(self) -> None:
        """Raises ProgramFailed if it has ended."""
        status = self.process.poll()
        if status is not None:
            raise ProgramFailed(self.last_words(f"ended with status {status}"))

    def wait_until(
        self, is_ready: Callable[[], bool], what: str, *, timeout_s: float, interval_s: float = 0.02
    ) -> None:
        """Poll until the program has done `what`. Raises ProgramFailed when it ends first or takes too long."""
        deadline = time.monotonic() + timeout_s
        while not is_ready():
            self.check()
            if time.monotonic() > deadline:
                raise ProgramFailed(self.last_words(f"no {what} within {timeout_s:.0f} s"))
            time.sleep(interval_s)

    def last_words(self, what: str) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:]
        return "\n".join([f"{self.log.stem}: {what}; the end of {self.log}:", *lines])

    def stop(self) -> None:
        """Ask it to end; kill it when it does not. Safe to call twice."""
        self.process.terminate()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
