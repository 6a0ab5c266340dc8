"""The command `kbpf`, and `python -m kbpf`. Ctrl-C while the modules load is as quiet as it is later."""

import gc
import sys
from typing import NoReturn

INTERRUPTED = 130
"""What a shell reports for a process that Ctrl-C ended."""

FIRST_GARBAGE_AT = 1_000_000
"""Modules and the objects of a cluster live long and in no circles: with Python's own threshold, looking for circles
among them is a quarter of what a start costs. After the start the server lowers it."""


def main() -> NoReturn:
    """Exit codes as in the documentation: 0 fine, 1 run-time failure, 2 usage, 3 unavailable, 4 owned by another."""
    gc.set_threshold(FIRST_GARBAGE_AT)
    try:
        from kbpf.cli.main import run

        status = run(sys.argv[1:])
    except KeyboardInterrupt:
        status = INTERRUPTED
    sys.exit(status)


if __name__ == "__main__":
    main()
