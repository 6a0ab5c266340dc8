"""A child process of the demo that is spoken to in lines of JSON: the echo server, and callers.

The parent's half. A child runs a module of this package, reads its order from the first line, answers in lines, and
ends when its input closes, so none outlives a parent that was killed.
"""

import subprocess
import sys
from typing import IO, Any, Self, cast

import msgspec

from kbpf.demo.patience import patient
from kbpf.errors import CommandFailed

PATIENCE_S = 1.0


class Child:
    """One running child. In a session of its own, so that Ctrl-C reaches the parent alone, which ends it in order."""

    def __init__(self, module: str, order: object) -> None:
        self._module = module
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._input, self._output = cast(IO[str], self._process.stdin), cast(IO[str], self._process.stdout)
        self.tell(order)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, question: object) -> Any:
        self.tell(question)
        return self.hear()

    def tell(self, line: object) -> None:
        try:
            self._input.write(msgspec.json.encode(line).decode() + "\n")
            self._input.flush()
        except BrokenPipeError:
            raise self._failure() from None

    def hear(self) -> Any:
        line = self._output.readline()
        if not line:
            raise self._failure()
        return msgspec.json.decode(line)

    def close(self) -> None:
        """End it by closing its input, and by force if it is in the middle of something. Safe to call twice."""
        self._end()

    def _end(self) -> str:
        try:
            return self._process.communicate(timeout=patient(PATIENCE_S))[1]
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.communicate()[1]

    def _failure(self) -> CommandFailed:
        words = self._end().strip().splitlines()
        return CommandFailed(f"python -m {self._module}", self._process.returncode, words[-1] if words else "")
