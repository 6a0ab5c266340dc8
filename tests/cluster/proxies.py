"""The two proxies under comparison, started with the same flags.

That is possible because kbpf has taken kube-proxy's names, meanings and defaults.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from tests.cluster.programs import Program, built

KBPF = Path(sys.executable).with_name("kbpf")

# Free in every namespace of its own.
COMMON = ("--healthz-bind-address=127.0.0.1:10256",)
# What kube-proxy must leave alone on a machine that is not its own.
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


def start_kbpf(log: Path, namespace: str, manifests: Path, flags: Sequence[str]) -> Program:
    return Program(
        log,
        [KBPF, "--datapath=iptables", f"--manifests={manifests}", *COMMON, *flags],
        namespace=namespace,
    )
