"""What an operator should know of this node before its rules carry traffic; nothing here is wrong enough to stop.

Asked once by whoever writes the first rules.
"""

from collections.abc import Iterator

from kbpf.datapath.iptables.settings import IptablesSettings
from kbpf.host.sysctl import Sysctl, Sysctls


def iptables_advice(settings: IptablesSettings, sysctls: Sysctls) -> Iterator[str]:
    if not settings.detectors and not settings.masquerade_all:
        yield (
            "no range or interface of pods is known (--cluster-cidr, --detect-local-mode): "
            "callers of ClusterIPs from outside the cluster are not masqueraded"
        )
    if sysctls.read(Sysctl.BRIDGE_CALLS_IPTABLES) == 0:
        yield (
            "net.bridge.bridge-nf-call-iptables is 0: between pods on one Linux bridge, "
            "answers come from the pod instead of the Service"
        )
