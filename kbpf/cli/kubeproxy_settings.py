"""kube-proxy's flags, by name, meaning and default; and those of its flags that mean nothing here.

https://kubernetes.io/docs/reference/command-line-tools-reference/kube-proxy/
"""

import click

from kbpf.cli.kinds import Duration, choice
from kbpf.cli.setting import Setting
from kbpf.model.detector import DetectLocalMode

TRAFFIC = (
    Setting(
        "--hostname-override",
        ("hostnameOverride",),
        "This node's name in the cluster.",
        metavar="NAME",
        default="the host's name",
    ),
    Setting("--cluster-cidr", ("clusterCIDR",), "The range of the pods, one for each IP family.", metavar="CIDRS"),
    Setting(
        "--detect-local-mode",
        ("detectLocalMode",),
        "How traffic from pods is told from other traffic.",
        choice(DetectLocalMode),
    ),
    Setting("--pod-bridge-interface", ("detectLocal.bridgeInterface",), "In mode BridgeInterface.", metavar="NAME"),
    Setting(
        "--pod-interface-name-prefix",
        ("detectLocal.interfaceNamePrefix",),
        "In mode InterfaceNamePrefix.",
        metavar="PREFIX",
    ),
    Setting(
        "--masquerade-all",
        ("iptables.masqueradeAll", "nftables.masqueradeAll"),
        "Masquerade everything that goes to a ClusterIP.",
        bool,
    ),
    Setting(
        "--iptables-masquerade-bit",
        ("iptables.masqueradeBit", "nftables.masqueradeBit"),
        "Bit of the packet mark.",
        int,
    ),
    Setting(
        "--iptables-localhost-nodeports",
        ("iptables.localhostNodePorts",),
        "Serve node ports on 127.0.0.1 as well.",
        bool,
    ),
    Setting(
        "--nodeport-addresses",
        ("nodePortAddresses",),
        "Addresses on which node ports are open: CIDRs, 'primary', 'localhost', 'all'.",
        metavar="CIDRS",
        default="all",
        is_list=True,
    ),
    Setting("--bind-address", ("bindAddress",), "This node's address; nothing listens on it.", metavar="IP"),
)

PROCESS = (
    Setting(
        "--kubeconfig",
        ("clientConnection.kubeconfig",),
        "How to reach the API server.",
        metavar="FILE",
        default="as in a pod",
    ),
    Setting("--master", ("kbpf.master",), "The API server, in place of the kubeconfig's.", metavar="URL"),
    Setting(
        "--iptables-sync-period",
        ("iptables.syncPeriod", "nftables.syncPeriod"),
        "At least this often the kernel is compared with what it should hold, and repaired.",
        Duration(),
    ),
    Setting(
        "--iptables-min-sync-period",
        ("iptables.minSyncPeriod", "nftables.minSyncPeriod"),
        "Rest between two writes of iptables rules, counted from the end of the first.",
        Duration(),
    ),
    Setting(
        "--conntrack-max-per-core",
        ("conntrack.maxPerCore",),
        "Room in the connection tracking table for each core; never makes it smaller. 0: leave it.",
        int,
    ),
    Setting("--conntrack-min", ("conntrack.min",), "At least so much room, however few the cores.", int),
    Setting(
        "--conntrack-tcp-timeout-established",
        ("conntrack.tcpEstablishedTimeout",),
        "How long an idle TCP connection is tracked. 0: leave it.",
        Duration(),
    ),
    Setting(
        "--conntrack-tcp-timeout-close-wait",
        ("conntrack.tcpCloseWaitTimeout",),
        "How long a TCP connection is tracked that one side has closed. 0: leave it.",
        Duration(),
    ),
    Setting(
        "--conntrack-tcp-be-liberal",
        ("conntrack.tcpBeLiberal",),
        "Let TCP packets outside of the window pass as valid.",
        bool,
    ),
    Setting(
        "--conntrack-udp-timeout",
        ("conntrack.udpTimeout",),
        "How long a UDP flow without answers is tracked. 0: leave it.",
        Duration(),
    ),
    Setting(
        "--conntrack-udp-timeout-stream",
        ("conntrack.udpStreamTimeout",),
        "How long a UDP flow with answers is tracked. 0: leave it.",
        Duration(),
    ),
    Setting(
        "--healthz-bind-address",
        ("healthzBindAddress",),
        "Where /healthz and /livez answer; 'none': nowhere.",
        metavar="IP[:PORT]",
        default="0.0.0.0:10256",
    ),
    Setting(
        "--metrics-bind-address",
        ("metricsBindAddress",),
        "Where /metrics answers, and /proxyMode, /configz, /flagz, /statusz, /version; 'none': nowhere.",
        metavar="IP[:PORT]",
        default="127.0.0.1:10249",
    ),
    Setting(
        "--bind-address-hard-fail",
        ("bindAddressHardFail",),
        "End when an address cannot be listened on, instead of trying again.",
        bool,
    ),
    Setting(
        "--profiling",
        ("enableProfiling",),
        "Show stacks and objects below /debug of the metrics server.",
        bool,
    ),
    Setting("--oom-score-adj", ("oomScoreAdj",), "Of this process; lower is killed later.", int),
    Setting(
        "--proxy-mode",
        ("mode",),
        "Accepted for kube-proxy's sake; it says which section of the file counts. See --datapath.",
        metavar="MODE",
    ),
    Setting("--logging-format", ("logging.format",), "kube-proxy's name for --log-format.", is_hidden=True),
)

UNUSED = (
    Setting("--config-sync-period", ("configSyncPeriod",), "", Duration(), is_hidden=True),
    Setting("--kube-api-content-type", ("clientConnection.contentType",), "", is_hidden=True),
    Setting("--kube-api-qps", ("clientConnection.qps",), "", float, is_hidden=True),
    Setting("--kube-api-burst", ("clientConnection.burst",), "", int, is_hidden=True),
    Setting("--log-flush-frequency", ("logging.flushFrequency",), "", is_hidden=True),
)
"""They have a place in the document and no effect: watches need no refresh, and the log is not buffered."""

IGNORED_WITH_VALUE = (
    *("--feature-gates", "--healthz-port", "--metrics-port", "--show-hidden-metrics-for-version", "--vmodule"),
    *("--ipvs-exclude-cidrs", "--ipvs-min-sync-period", "--ipvs-scheduler", "--ipvs-sync-period"),
    *("--ipvs-tcp-timeout", "--ipvs-tcpfin-timeout", "--ipvs-udp-timeout"),
    *("--log-json-info-buffer-size", "--log-text-info-buffer-size"),
    *("--log-backtrace-at", "--log-dir", "--log-file", "--log-file-max-size", "--stderrthreshold"),
    *("--proxy-port-range", "--resource-container", "--udp-timeout"),
)
IGNORED_BOOLEANS = (
    *("--ipvs-strict-arp", "--log-json-split-stream", "--log-text-split-stream"),
    *("--add-dir-header", "--alsologtostderr", "--logtostderr", "--one-output", "--skip-headers", "--skip-log-headers"),
    *("--cleanup-ipvs", "--windows-run-as-service"),
)
"""Old scripts still pass what kube-proxy has dropped: a flag more is no reason for a node without Services."""

IGNORED = tuple(
    click.option(flag, metavar="VALUE", multiple=True, hidden=True, expose_value=True) for flag in IGNORED_WITH_VALUE
) + tuple(
    click.option(flag, type=bool, is_flag=False, flag_value=True, default=None, hidden=True)
    for flag in IGNORED_BOOLEANS
)
