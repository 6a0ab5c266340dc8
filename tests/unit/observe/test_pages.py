"""The pages of the metrics server, as scripts and tests of kube-proxy read them."""

import json
import sys

import pytest

from kbpf import __version__
from kbpf.cli.main import cli
from kbpf.cli.options import load_options
from kbpf.clock import FakeClock
from kbpf.configuration.document import encode
from kbpf.observe.debug_pages import DEBUG_PAGES
from kbpf.observe.pages import MetricsPages, Process


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def pages(clock: FakeClock) -> MetricsPages:
    arguments = ["--hostname-override=n1", "--cluster-cidr=10.42.0.0/16", "--conntrack-min=0", "--masquerade-all"]
    loaded = load_options(cli.make_context("kbpf", arguments).params)
    process = Process(clock.now(), encode(loaded.document), loaded.flags)
    return MetricsPages(process, lambda: b"metrics", lambda: "ebpf", clock)


def body(pages: MetricsPages, path: str) -> str:
    response = pages.answer(path)
    assert response.status == 200
    return response.body.decode()


@pytest.mark.parametrize(("path", "text"), [("/proxyMode", "ebpf"), ("/healthz", "ok"), ("/metrics", "metrics")])
def test_plain_answers(pages: MetricsPages, path: str, text: str):
    assert body(pages, path) == text


@pytest.mark.parametrize("path", ["/", "/metrics/", "/debug/pprof/", "/proxymode"])
def test_other_paths_are_not_found(pages: MetricsPages, path: str):
    assert pages.answer(path).status == 404


def test_configz_shows_the_configuration_in_force_in_its_public_form(pages: MetricsPages):
    document = json.loads(body(pages, "/configz"))["kubeproxy.config.k8s.io"]
    assert (document["kind"], document["apiVersion"]) == (
        "KubeProxyConfiguration",
        "kubeproxy.config.k8s.io/v1alpha1",
    )
    assert document["conntrack"]["min"] == 0
    assert document["iptables"] == {
        "masqueradeBit": 14,
        "masqueradeAll": True,
        "localhostNodePorts": True,
        "syncPeriod": "30s",
        "minSyncPeriod": "1s",
    }
    assert (document["mode"], document["metricsBindAddress"]) == ("iptables", "127.0.0.1:10249")
    assert document["kbpf"]["datapath"] == "auto"


def test_flagz_shows_every_flag_by_name(pages: MetricsPages):
    lines = body(pages, "/flagz").splitlines()
    for line in ("cluster-cidr 10.42.0.0/16", "hostname-override n1", "masquerade-all true", "conntrack-min 0"):
        assert line in lines


def test_status_is_what_the_process_says_of_itself(clock: FakeClock):
    said: dict[str, object] = {"datapath": "ebpf", "lastSync": 12.5}
    process = Process(clock.now(), {}, {})
    assert json.loads(body(MetricsPages(process, bytes, str, clock, lambda: said), "/status")) == said


def test_statusz_says_since_when_and_where_to_look(pages: MetricsPages, clock: FakeClock):
    clock.advance(3 * 3600 + 4 * 60 + 5)
    lines = body(pages, "/statusz").splitlines()
    assert "Started= Thu Jan 01 00:16:40 UTC 1970" in lines
    assert "Up= 3 hr 04 min 05 sec" in lines
    assert f"Binary version= {__version__}" in lines
    assert "Datapath= ebpf" in lines


def test_stacks_and_objects_are_shown_where_profiling_is_on_and_nowhere_else(pages: MetricsPages, clock: FakeClock):
    process = Process(clock.now(), {}, {})
    debugging = MetricsPages(process, lambda: b"", lambda: "ebpf", clock, debug=DEBUG_PAGES)
    assert f"in {sys._getframe().f_code.co_name}" in body(debugging, "/debug/stacks")
    assert " objects, " in body(debugging, "/debug/objects")
    for path in DEBUG_PAGES:
        assert path in body(debugging, "/statusz")
        assert pages.answer(path).status == 404


def test_version_is_kbpf_s(pages: MetricsPages):
    assert json.loads(body(pages, "/version"))["version"] == __version__


def test_service_level_indicators_count_the_health_checks(pages: MetricsPages):
    body(pages, "/healthz")
    lines = body(pages, "/metrics/slis").splitlines()
    assert 'kubernetes_healthcheck{name="ping",type="healthz"} 1.0' in lines
    assert 'kubernetes_healthchecks_total{name="ping",status="success",type="healthz"} 1.0' in lines
