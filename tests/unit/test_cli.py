"""The command line: help that teaches, one line for bad input, the exit codes of the contract."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from kbpf.cli.main import cli, run
from kbpf.cli.options import ignored_flags, load_options
from kbpf.cli.spelling import respelled
from kbpf.config import Config, ConntrackSettings
from kbpf.configuration.loading import load
from kbpf.configuration.reading import read_configuration
from kbpf.datapath.ebpf.layout import ALL_MAPS, NAMES, NUMBERED_MAPS
from kbpf.model.address import Family
from kbpf.observe.log import ROOT
from tests.builders import endpoint_slice, port, service, slice_port
from tests.manifests import write_manifests

EXAMPLES = Path(__file__).parents[2] / "examples"
WEB = """
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {clusterIP: 10.96.0.10, ports: [{port: 80, nodePort: 30080}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: "", port: 8080}]
endpoints: [{addresses: [10.42.1.5]}]
"""


@pytest.fixture(autouse=True)
def logging_of_its_own() -> Iterator[None]:
    """A command configures the log for its process, on a standard error that is closed after the test."""
    yield
    ROOT.handlers = []


@pytest.fixture
def web(tmp_path: Path) -> str:
    file = tmp_path / "web.yaml"
    file.write_text(WEB)
    return str(file)


def test_help_shows_examples_and_subcommands(capsys: pytest.CaptureFixture[str]):
    assert run(["--help"]) == 0
    words = capsys.readouterr().out
    for word in ("--manifests", "--datapath", "render", "probe", "cleanup", "demo", "Examples:"):
        assert word in words


@pytest.mark.parametrize("command", ["render", "probe", "status", "explain", "verify", "top", "cleanup", "demo"])
def test_every_subcommand_has_help(command: str, capsys: pytest.CaptureFixture[str]):
    assert run([command, "--help"]) == 0
    assert "Usage: kbpf" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "--kubeconfig FILE, or manifests with --manifests PATH"),
        (["--kubeconfig", "/nonexistent/file"], "--kubeconfig /nonexistent/file: No such file or directory"),
        (["--manifests", "x", "--datapath=xdp"], "'xdp' is not one of"),
        (["--manifests", "x", "--iptables-sync-period=30"], "such as 30s"),
        (["--manifests", "x", "--iptables-sync-period=0s"], "--iptables-sync-period"),
        (["--manifests", "x", "--cluster-cidr=10.0.0.0"], "--cluster-cidr: '10.0.0.0'"),
        (["--manifests", "x", "--node-ip=localhost"], "--node-ip: 'localhost'"),
        (["--manifests", "x", "--hostname-override= "], "--hostname-override: the node name is empty"),
        (["--manifests", "x", "--healthz-bind-address=:0"], "--healthz-bind-address"),
        (["--manifests", "x", "--masquerade-all=perhaps"], "'perhaps' is not a valid boolean"),
        (["--manifests", "x", "--conntrack-min=-1"], "--conntrack-min: must not be negative"),
        (["--manifests", "x", "--conntrack-udp-timeout=-1s"], "--conntrack-udp-timeout: must not be negative"),
        (["--manifests", "x", "--conntrack-tcp-timeout-established=86400"], "such as 30s"),
        (["--manifests", "x", "--iptables-min-sync-period=31s"], "--iptables-min-sync-period: must lie between"),
        (["--manifests", "x", "--iptables-masquerade-bit=32"], "--iptables-masquerade-bit: 32 is not between 0 and 31"),
        (["--manifests", "x", "--detect-local-mode=BridgeInterface"], "detectLocal.bridgeInterface: must not be empty"),
        (["--manifests", "x", "--bpf-backend-entries=0"], "--bpf-backend-entries"),
        (["--manifests", "x", "--proxy-mode=kernelspace"], "--proxy-mode: 'kernelspace' is not one of iptables"),
        (["--config", "/nowhere"], "--config /nowhere: No such file"),
        (["--frobnicate"], "No such option"),
        (["serve"], "No such command 'serve'"),
        (["render"], "--manifests"),
        (["verify", "--config", "/nowhere"], "--config /nowhere: No such file"),
        (["verify", "--kubeconfig", "/nonexistent/file"], "--kubeconfig /nonexistent/file: No such file"),
        (["explain", "10.42.1.9"], "Missing argument 'DESTINATION'"),
        (["explain", "10.42.1.9", "10.96.0.10"], "DESTINATION is ADDRESS:PORT"),
        (["explain", "nobody", "10.96.0.10:80"], "CLIENT is an IP address, or `host`"),
        (["top", "--interval=1"], "such as 30s"),
        (["status", "-o", "yaml"], "'yaml' is not one of"),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_2(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]):
    assert run(arguments) == 2
    error = capsys.readouterr().err
    assert words in error
    assert "Traceback" not in error


def test_the_option_that_a_full_map_asks_to_raise_exists(capsys: pytest.CaptureFixture[str]):
    run(["--help"])
    words = capsys.readouterr().out
    for name in NUMBERED_MAPS - {NAMES.name}:  # as large as the services' own, always
        spec = next(spec for spec in ALL_MAPS if spec.name == name)
        assert spec.size_flag in words


def config_for(*arguments: str) -> Config:
    return load_options(cli.make_context("kbpf", ["--manifests", "x", *arguments]).params).config


def test_the_conntrack_options_default_to_those_of_kube_proxy():
    assert config_for().conntrack == ConntrackSettings(
        max_per_core=32768,
        min=131072,
        tcp_timeout_established_s=86400,
        tcp_timeout_close_wait_s=3600,
        tcp_be_liberal=False,
        udp_timeout_s=0,
        udp_timeout_stream_s=0,
    )


def test_each_conntrack_option_reaches_its_setting():
    arguments = [
        "--conntrack-max-per-core=1000",
        "--conntrack-min=2000",
        "--conntrack-tcp-timeout-established=2h",
        "--conntrack-tcp-timeout-close-wait=1m30s",
        "--conntrack-tcp-be-liberal",
        "--conntrack-udp-timeout=10s",
        "--conntrack-udp-timeout-stream=59999ms",
    ]
    assert config_for(*arguments).conntrack == ConntrackSettings(
        max_per_core=1000,
        min=2000,
        tcp_timeout_established_s=7200,
        tcp_timeout_close_wait_s=90,
        tcp_be_liberal=True,
        udp_timeout_s=10,
        udp_timeout_stream_s=59,
    )


def test_render_gives_rules_that_name_the_service(web: str):
    result = CliRunner().invoke(cli, ["render", "--manifests", web, "--datapath", "iptables"])
    assert result.exit_code == 0
    assert "# iptables-restore --noflush" in result.output
    assert '--comment "shop/web cluster IP" -m tcp -p tcp -d 10.96.0.10 --dport 80' in result.output


def test_render_gives_rules_as_json_by_family_table_and_chain(web: str):
    result = CliRunner().invoke(cli, ["render", "--manifests", web, "--format", "json"])
    assert "KUBE-SERVICES" in json.loads(result.output)["IPv4"]["nat"]


def test_render_gives_the_rows_of_the_maps_and_what_is_left_to_iptables(web: str):
    result = CliRunner().invoke(cli, ["render", "--manifests", web, "--datapath", "ebpf", "--format", "json"])
    rendered = json.loads(result.output)
    kinds = {row["kind"]: row for row in rendered["maps"]["frontends"]}
    assert kinds["CLUSTER_IP"]["address"] == "10.96.0.10"
    assert kinds["CLUSTER_IP"]["port"] == 80
    assert [row["address"] for row in rendered["maps"]["backends"]] == ["10.42.1.5"]
    assert kinds["NODE_PORT"]["port"] == 30080
    assert rendered["residue"] == {}


def test_render_puts_every_service_into_the_rules_beneath_ebpf_when_all_are_wanted_there(web: str):
    common = ["render", "--manifests", web, "--format", "json"]
    beneath = CliRunner().invoke(cli, [*common, "--datapath", "ebpf", "--underlay", "full"])
    alone = CliRunner().invoke(cli, [*common, "--datapath", "iptables"])
    assert json.loads(beneath.output)["residue"] == json.loads(alone.output) != {}


def test_render_gives_the_rules_of_what_is_left_to_iptables(tmp_path: Path):
    sctp = service("web", port(80, protocol="SCTP", node_port=30080), type="NodePort")
    path = write_manifests(
        tmp_path / "sctp", sctp, endpoint_slice("web", "10.42.1.5", ports=[slice_port(8080, protocol="SCTP")])
    )
    result = CliRunner().invoke(cli, ["render", "--manifests", str(path), "--datapath", "ebpf", "--format", "json"])
    assert "30080" in str(json.loads(result.output)["residue"]["IPv4"]["nat"]["KUBE-NODEPORTS"])


@pytest.mark.parametrize("datapath", ["iptables", "ebpf"])
@pytest.mark.parametrize("output", ["restore", "json"])
def test_the_examples_render(datapath: str, output: str):
    arguments = ["render", "--manifests", str(EXAMPLES), "--datapath", datapath, "--format", output]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0
    assert "10.96.0.10" in result.output


def test_render_reads_standard_input():
    result = CliRunner().invoke(cli, ["render", "--manifests", "-"], input=WEB)
    assert "10.42.1.5:8080" in result.output


def test_render_names_what_is_wrong_and_goes_on(tmp_path: Path):
    (tmp_path / "a.yaml").write_text(WEB)
    (tmp_path / "b.yaml").write_text(WEB.replace("web", "bad").replace("port: 80,", "port: 65536,"))
    result = CliRunner().invoke(cli, ["render", "--manifests", str(tmp_path)])
    assert result.exit_code == 0
    assert "Service shop/bad: spec.ports[0].port: 65536" in result.stderr
    assert "shop/web cluster IP" in result.stdout
    assert "shop/bad" not in result.stdout


def test_manifests_that_do_not_exist_are_one_line(capsys: pytest.CaptureFixture[str]):
    assert run(["render", "--manifests", "/nowhere"]) == 2
    assert capsys.readouterr().err == "kbpf: --manifests /nowhere: does not exist\n"


def test_probe_lists_every_feature_with_an_answer_and_names_the_datapath():
    result = CliRunner().invoke(cli, ["probe", "-o", "json", "--bpffs-root", "/nowhere"])
    found = json.loads(result.stdout)
    assert found["datapath"] in ("iptables", "none")
    assert {feature["answer"] for feature in found["features"]} <= {"yes", "no", "cannot tell"}
    bpffs = next(feature for feature in found["features"] if feature["name"] == "bpffs")
    assert bpffs["answer"] == "no"
    assert "/nowhere" in bpffs["reason"]


FLAGS = [
    line
    for line in (Path(__file__).parents[1] / "data" / "kube-proxy-flags.txt").read_text().splitlines()
    if not line.startswith("#")
]


@pytest.mark.parametrize("flag", FLAGS)
def test_every_flag_that_scripts_give_kube_proxy_is_accepted(flag: str):
    arguments = respelled([flag, "--pod-bridge-interface=cni0", "--pod-interface-name-prefix=veth"])
    assert load_options(cli.make_context("kbpf", arguments).params)


def test_flags_without_effect_are_named_in_one_line():
    arguments = ["--ipvs-scheduler=rr", "--logtostderr", "--masquerade-all", "--feature-gates=A=true"]
    assert ignored_flags(cli.make_context("kbpf", arguments).params) == (
        "--feature-gates",
        "--ipvs-scheduler",
        "--logtostderr",
    )


@pytest.mark.parametrize(
    ("arguments", "verbosity"),
    [
        ([], 0),
        (["-v"], 1),
        (["-vv"], 2),
        (["-v=2"], 2),
        (["-v", "3"], 3),
        (["-v2"], 2),
        (["--v=4"], 4),
        (["--v", "4"], 4),
        (["-v", "--once"], 1),
    ],
)
def test_verbosity_may_be_spelled_as_kube_proxy_has_it(arguments: list[str], verbosity: int):
    params = cli.make_context("kbpf", respelled(arguments)).params
    assert load_options(params).document.logging.verbosity == verbosity


def test_the_configuration_that_would_be_used_is_written_and_can_be_used(tmp_path: Path):
    written = tmp_path / "written.yaml"
    assert run(["--cluster-cidr=10.42.0.0/16", "--write-config-to", str(written)]) == 0
    assert load(read_configuration(written)).config.cluster_cidrs == {Family.IPV4: "10.42.0.0/16"}


def test_a_place_that_cannot_be_written_to_is_one_line(capsys: pytest.CaptureFixture[str]):
    assert run(["--write-config-to", "/nowhere/config.yaml"]) == 2
    assert "--write-config-to /nowhere/config.yaml: No such file" in capsys.readouterr().err
