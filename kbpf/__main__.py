"""`python -m kbpf`: the same as the command `kbpf`."""

from kbpf.cli.main import main

main()
