"""The command `kbpf`, and `python -m kbpf`. Ctrl-C while the modules load is as quiet as it is later."""

import sys
from typing import NoReturn

INTERRUPTED = 130
"""What a shell reports for a process that Ctrl-C ended."""


def main() -> NoReturn:
    """Exit codes as in the documentation: 0 fine, 1 run-time failure, 2 usage, 3 unavailable, 4 owned by another."""
    try:
        from kbpf.cli.main import run

        status = run(sys.argv[1:])
    except KeyboardInterrupt:
        status = INTERRUPTED
    sys.exit(status)


if __name__ == "__main__":
    main()
