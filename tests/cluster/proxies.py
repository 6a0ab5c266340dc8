"""The two proxies under comparison, started with the same flags.

That is possible because kbpf has taken kube-proxy's names, meanings and defaults.
"""

import shutil
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path

from tests.cluster.programs import Program, built

KBPF = Path(sys.executable).with_name("kbpf")

# Free in every namespace of its own.
COMMON = ("--healthz-bind-address=127.0.0.1:10256",)
# What either must leave alone on a machine that is not its own.
CAUTION = (
    "--conntrack-max-per-core=0",
    "--conntrack-min=0",
    "--oom-score-adj=0",
    "--metrics-bind-address=127.0.0.1:10249",
)


def start_kube_proxy(
    log: Path, namespace: str, kubeconfig: Path, flags: Sequence[str], *, path: Path | None = None
) -> Program:
    """`path`: a folder whose iptables programs come before the machine's."""
    return Program(
        log,
        [built("kube-proxy"), "--proxy-mode=iptables", f"--kubeconfig={kubeconfig}", *COMMON, *CAUTION, *flags],
        namespace=namespace,
        search_first=path,
    )


def start_kbpf(log: Path, namespace: str, feed: Path, flags: Sequence[str]) -> Program:
    """`feed`: a folder of manifests, or a kubeconfig file."""
    source = f"--manifests={feed}" if feed.is_dir() else f"--kubeconfig={feed}"
    return Program(log, [KBPF, "--datapath=iptables", source, *COMMON, *CAUTION, *flags], namespace=namespace)


def iptables_programs(folder: Path, backend: str) -> Path:
    """A folder below `folder` in which `iptables` and its like are those of the backend: kube-proxy takes PATH's."""
    programs = folder / f"iptables-{backend}"
    programs.mkdir(exist_ok=True)
    for stem, suffix in product(("iptables", "ip6tables"), ("", "-save", "-restore")):
        program = shutil.which(f"{stem}-{backend}{suffix}")
        assert program, f"{stem}-{backend}{suffix} is not installed"
        link = programs / f"{stem}{suffix}"
        link.unlink(missing_ok=True)
        link.symlink_to(program)
    return programs
