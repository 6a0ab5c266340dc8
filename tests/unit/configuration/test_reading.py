"""Configuration files: what clusters hold loads unchanged, unknown fields warn, wrong values name their path."""

from pathlib import Path

import pytest
import yaml

from kbpf.config import Config, ConntrackSettings, DatapathWish, Fallback, ListenAddress
from kbpf.configuration.document import encode
from kbpf.configuration.loading import Given, Loaded, load
from kbpf.configuration.reading import read_configuration
from kbpf.errors import UsageError
from kbpf.model.address import Address, Family
from kbpf.model.detector import DetectLocalMode

SAMPLES = Path(__file__).parents[2] / "data" / "configurations"
HEAD = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"


def sample(name: str) -> Loaded:
    return load(read_configuration(SAMPLES / f"{name}.yaml"))


@pytest.fixture
def loaded(tmp_path: Path):
    def load_text(text: str, *given: Given) -> Loaded:
        (tmp_path / "config.yaml").write_text(HEAD + text)
        return load(read_configuration(tmp_path / "config.yaml"), given, ("backends",))

    return load_text


@pytest.mark.parametrize("name", ["kubeadm", "kind", "k3s"])
def test_the_files_of_clusters_load_without_a_word(name: str):
    assert sample(name).warnings == ()


def test_unset_fields_of_kubeadm_are_the_defaults():
    config = sample("kubeadm").config
    default = Config(node_name=config.node_name)
    assert config.kubeconfig == Path("/var/lib/kube-proxy/kubeconfig.conf")
    assert config.cluster_cidrs == {Family.IPV4: "10.244.0.0/16"}
    for field in ("sync_period_s", "min_sync_period_s", "conntrack", "masquerade_bit", "healthz_address"):
        assert getattr(config, field) == getattr(default, field)
    assert config.metrics_address == ListenAddress("127.0.0.1", 10249)
    assert config.oom_score_adjustment == -999


def test_zeros_of_kind_leave_connection_tracking_alone():
    config = sample("kind").config
    assert config.conntrack == ConntrackSettings(
        max_per_core=0, tcp_timeout_established_s=0, tcp_timeout_close_wait_s=0
    )
    assert config.cluster_cidrs == {Family.IPV4: "10.244.0.0/16", Family.IPV6: "fd00:10:244::/56"}


def test_fields_that_kube_proxy_dropped_warn():
    loaded = sample("eks")
    assert [warning.split(": ", 1)[1] for warning in loaded.warnings] == [
        "resourceContainer: unknown field, ignored",
        "udpIdleTimeout: unknown field, ignored",
    ]
    assert loaded.config.metrics_address == ListenAddress("0.0.0.0", 10249)
    assert loaded.config.min_sync_period_s == 1


def test_settings_without_a_counterpart_are_named_in_one_line():
    loaded = sample("gke")
    assert loaded.warnings == ("ignored, since kbpf has nothing like it: featureGates",)
    assert loaded.config.detect_local_mode is DetectLocalMode.NODE_CIDR
    assert (loaded.config.sync_period_s, loaded.config.min_sync_period_s) == (60, 10)
    assert loaded.document.logging.verbosity == 2


def test_own_settings_stand_under_kbpf():
    config = sample("k3s").config
    assert (config.datapath, config.fallback) == (DatapathWish.EBPF, Fallback.NONE)
    assert config.healthz_address == ListenAddress("127.0.0.1", 10256)
    assert config.node_port_addresses == ("primary", "127.0.0.0/8")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nodePortAddresses: 192.168.60.0/24", "nodePortAddresses: expected a list, got text"),
        ("nodePortAddresses: [foo]", r"nodePortAddresses\[0\]: 'foo' is neither a CIDR nor one of primary"),
        ("iptables: {minSyncPeriod: 5}", "iptables.minSyncPeriod: expected a duration such as 30s, got 5"),
        ('iptables: {minSyncPeriod: "-1s"}', "iptables.minSyncPeriod: must lie between 0 and iptables.syncPeriod"),
        ("iptables: {minSyncPeriod: 40s}", "iptables.minSyncPeriod: must lie between"),
        ("iptables: {syncPeriod: -1s}", "iptables.syncPeriod: must be greater than 0"),
        ("iptables: {masqueradeBit: 32}", "iptables.masqueradeBit: 32 is not between 0 and 31"),
        ("iptables: []", "iptables: expected a mapping, got a list"),
        ('oomScoreAdj: "5"', "oomScoreAdj: expected a whole number, got text"),
        ("oomScoreAdj: -2000", "oomScoreAdj: -2000 is not between -1000 and 1000"),
        ("mode: kernelspace", "mode: 'kernelspace' is not one of iptables, ipvs, nftables"),
        ("detectLocalMode: Foo", "detectLocalMode: 'Foo' is not one of ClusterCIDR"),
        ("detectLocalMode: BridgeInterface", "detectLocal.bridgeInterface: must not be empty"),
        ("clusterCIDR: 10.0.0.0", "clusterCIDR: '10.0.0.0'"),
        ("conntrack: {udpTimeout: -1s}", "conntrack.udpTimeout: must not be negative"),
        ("conntrack: {maxPerCore: -1}", "conntrack.maxPerCore: must not be negative"),
        ("clientConnection: {burst: -1}", "clientConnection.burst: must not be negative"),
        ("configSyncPeriod: -5m", "configSyncPeriod: must be greater than 0"),
        ("metricsBindAddress: 127.0.0.1:0", "metricsBindAddress: '127.0.0.1:0': port is not within"),
        ("bindAddress: host", "bindAddress: not an IP address"),
        ("logging: {format: xml}", "logging.format: 'xml' is not one of text, json"),
        ("enableProfiling: maybe", "enableProfiling: expected true or false, got text"),
        ("kbpf: {datapath: xdp}", "kbpf.datapath: 'xdp' is not one of auto, ebpf, iptables"),
        ("kbpf: {mapEntries: {sock: 5}}", "kbpf.mapEntries.sock: no such map; there are backends"),
        ("kbpf: {mapEntries: {backends: 0}}", "kbpf.mapEntries.backends: 0 is not between 1"),
    ],
)
def test_a_wrong_value_names_file_and_path(loaded, text: str, words: str):
    with pytest.raises(UsageError, match=f"config.yaml: {words}"):
        loaded(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("[]", "expected one KubeProxyConfiguration"),
        (HEAD + "---\n" + HEAD, "found 2 documents"),
        ("kind: ConfigMap\napiVersion: v1", "kind: expected KubeProxyConfiguration, got 'ConfigMap'"),
        ("kind: KubeProxyConfiguration", "apiVersion: expected kubeproxy.config.k8s.io/v1alpha1, got None"),
        (HEAD + "mode: [", "config.yaml:4: did not find"),
    ],
)
def test_what_is_no_configuration_says_what_it_is(tmp_path: Path, text: str, words: str):
    file = tmp_path / "config.yaml"
    file.write_text(text)
    with pytest.raises(UsageError, match=words):
        read_configuration(file)


def test_a_missing_file_is_one_line(tmp_path: Path):
    with pytest.raises(UsageError, match=r"--config .*nowhere: No such file"):
        read_configuration(tmp_path / "nowhere")


def test_a_misspelt_field_and_a_repeated_one_warn_with_their_place(loaded):
    found = loaded("nodePortAddreses: [10.0.0.0/8]\niptables: {syncPeriodd: 5s}\nmode: ipvs\nmode: iptables")
    assert [warning.split("config.yaml", 1)[1] for warning in found.warnings] == [
        ":6: mode: is there twice, the last one counts",
        ": nodePortAddreses: unknown field, ignored",
        ": iptables.syncPeriodd: unknown field, ignored",
    ]


def test_flags_win_over_the_file_and_are_named_when_they_are_wrong(loaded):
    found = loaded("clusterCIDR: 10.0.0.0/8", Given("--cluster-cidr", ("clusterCIDR",), "11.0.0.0/8"))
    assert found.config.cluster_cidrs == {Family.IPV4: "11.0.0.0/8"}
    with pytest.raises(UsageError, match=r"^--cluster-cidr: 'x'"):
        loaded("clusterCIDR: 10.0.0.0/8", Given("--cluster-cidr", ("clusterCIDR",), "x"))


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("iptables", (30, 1, 14, False, ())),
        ("nftables", (10, 2, 7, True, ("primary",))),
        ("ipvs", (20, 3, 14, False, ())),
    ],
)
def test_each_mode_has_its_own_section(loaded, mode: str, expected: tuple):
    config = loaded(
        f"mode: {mode}\n"
        "nftables: {syncPeriod: 10s, minSyncPeriod: 2s, masqueradeBit: 7, masqueradeAll: true}\n"
        "ipvs: {syncPeriod: 20s, minSyncPeriod: 3s}"
    ).config
    found = (config.sync_period_s, config.min_sync_period_s, config.masquerade_bit, config.masquerade_all)
    assert (*found, config.node_port_addresses) == expected


def test_an_ipv6_bind_address_moves_the_listeners_and_is_the_node_s_own(loaded):
    config = loaded('bindAddress: "fd60::11"\nkbpf: {nodeIP: 192.168.60.11}').config
    assert (config.healthz_address, config.metrics_address) == (ListenAddress("::", 10256), ListenAddress("::1", 10249))
    assert config.node_ips == (Address("fd60::11"), Address("192.168.60.11"))


def test_a_server_that_is_none_has_no_address(loaded):
    config = loaded("healthzBindAddress: none\nmetricsBindAddress: none").config
    assert (config.healthz_address, config.metrics_address) == (None, None)


def test_what_is_written_out_is_read_back(tmp_path: Path):
    for name in ("kubeadm", "kind", "eks", "gke", "k3s"):
        document = sample(name).document
        (tmp_path / "written.yaml").write_text(yaml.safe_dump(encode(document)))
        assert load(read_configuration(tmp_path / "written.yaml")).document == document
