"""Short-lived Python children that answer one JSON question: the loader and the self-test's client.

They are files of the standard library's Python only, so they run under any interpreter and start in milliseconds.
"""

import json
import subprocess
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

from kbpf.errors import LoadFailed


class Reply(NamedTuple):
    answer: dict[str, Any]
    stderr: str


def ask(
    interpreter: str, script: Path, question: dict[str, Any], timeout_s: float, keep_open: Collection[int] = ()
) -> Reply:
    """Run `script` and return its answer; LoadFailed when it dies, hangs or says nothing.

    `keep_open`: file descriptors that the child has under the same numbers.
    """
    # -I: neither the caller's directory nor the script's own may stand in for a module.
    command = [interpreter, "-I", str(script)]
    try:
        done = subprocess.run(
            command,
            input=json.dumps(question),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            pass_fds=keep_open,
        )
    except subprocess.TimeoutExpired as error:
        raise LoadFailed(f"{script.name} under {interpreter}: no answer within {timeout_s:g} s") from error
    except OSError as error:
        raise LoadFailed(f"cannot run {interpreter}: {error.strerror}") from error
    try:
        answer = json.loads(done.stdout)
    except ValueError as error:
        words = done.stderr.strip().splitlines()[-1:] or ["no message"]
        raise LoadFailed(f"{script.name} under {interpreter}: exit status {done.returncode}: {words[0]}") from error
    return Reply(answer, done.stderr)
