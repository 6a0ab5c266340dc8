"""What is read without the kubernetes client, that it comes to the same as with it, and what is left to it."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from kbpf.clock import FakeClock
from kbpf.source.api import access, plain
from kbpf.source.api.access import Access, session_of
from kbpf.source.api.plain import PlainAccess, is_own_service, plain_access

URL = "https://10.0.0.1:6443"
AUTHORITY = {"certificate-authority": "ca.crt"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name in ("ca.crt", "client.crt", "client.key"):
        (tmp_path / name).write_text("any")
    (tmp_path / "token").write_text("from-file\n")
    return tmp_path


def kubeconfig(folder: Path, user: dict[str, Any], cluster: dict[str, Any] = AUTHORITY) -> Path:
    tree = {
        "clusters": [
            {"name": "other", "cluster": {"server": URL, **AUTHORITY}},
            {"name": "c", "cluster": {"server": f"{URL}/", **cluster}},
        ],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "n"}}],
        "current-context": "x",
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(tree))
    return path


PLAIN_USERS = [
    {"token": "secret"},
    {"tokenFile": "token"},
    {"client-certificate": "client.crt", "client-key": "client.key"},
    {},
]


@pytest.mark.parametrize("user", PLAIN_USERS)
def test_a_plain_kubeconfig_comes_to_the_same_as_with_the_client(folder: Path, user: dict[str, str]):
    path = kubeconfig(folder, user)
    assert plain_access(path)
    reader = Access(path, "", FakeClock())
    ours, theirs = reader.read(), session_of(reader._configuration())
    assert (ours.url, ours.authorization) == (theirs.url, theirs.authorization)
    for argument in ("ca_certs", "cert_file", "key_file", "maxsize"):
        ours_there, theirs_there = (each.pool.connection_pool_kw.get(argument) for each in (ours, theirs))
        assert ours_there == theirs_there, argument
    assert list(ours.pool.connection_pool_kw["socket_options"]) == list(access.SOCKET_OPTIONS)
    assert ours.pool.connection_pool_kw["cert_reqs"] == "CERT_REQUIRED"


@pytest.mark.parametrize(
    ("user", "cluster"),
    [
        ({"exec": {"command": "/bin/true"}}, AUTHORITY),
        ({"auth-provider": {"name": "oidc"}}, AUTHORITY),
        ({"client-certificate-data": "YQ=="}, AUTHORITY),
        ({"token": "a", "tokenFile": "token"}, AUTHORITY),
        ({"tokenFile": "missing"}, AUTHORITY),
        ({"token": 5}, AUTHORITY),
        ({}, {"certificate-authority-data": "YQ=="}),
        ({}, {"certificate-authority": "missing"}),
        ({}, {**AUTHORITY, "proxy-url": "http://proxy"}),
        ({}, {**AUTHORITY, "insecure-skip-tls-verify": True}),
        ({}, {**AUTHORITY, "server": "http://10.0.0.1"}),
        ({}, {}),
    ],
)
def test_everything_else_is_left_to_the_client(folder: Path, user: dict[str, Any], cluster: dict[str, Any]):
    assert plain_access(kubeconfig(folder, user, cluster)) is None


@pytest.mark.parametrize("text", ["", "{", "a: [", "text", "clusters: 5", "\x00", "current-context: y"])
def test_what_is_no_kubeconfig_is_left_to_the_client(folder: Path, text: str):
    path = folder / "kubeconfig"
    path.write_text(text)
    assert plain_access(path) is None
    assert plain_access(folder / "none") is None
    assert plain_access(folder) is None


def test_a_proxy_is_left_to_the_client(folder: Path, monkeypatch: pytest.MonkeyPatch):
    path = kubeconfig(folder, {})
    assert plain_access(path)
    monkeypatch.setenv("https_proxy", "http://10.0.0.2:3128")
    assert plain_access(path) is None


def test_a_pod_has_its_service_account(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(plain, "SERVICE_ACCOUNT", folder)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert plain_access(None) is None
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd96::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    authority = str(folder / "ca.crt")
    assert plain_access(None) == PlainAccess("https://[fd96::1]:443", "from-file", authority)
    (folder / "ca.crt").write_text("")
    assert plain_access(None) is None


@pytest.mark.parametrize(
    ("url", "service", "expected"),
    [
        ("https://10.96.0.1:443", "tcp://10.96.0.1:443", True),
        ("https://[fd96::1]:443", "tcp://[fd96::1]:443", True),
        ("https://192.0.2.10:6443", "tcp://10.96.0.1:443", False),
        ("https://192.0.2.10:6443", None, False),
    ],
)
def test_the_way_by_the_own_service_is_known_from_what_kubelet_says(
    monkeypatch: pytest.MonkeyPatch, url: str, service: str | None, expected: bool
):
    monkeypatch.delenv("KUBERNETES_PORT", raising=False)
    if service:
        monkeypatch.setenv("KUBERNETES_PORT", service)
    assert is_own_service(url) is expected


def test_the_master_alone_needs_no_service_account(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(plain, "SERVICE_ACCOUNT", folder)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    assert Access(None, "https://10.9.9.9", FakeClock()).read().authorization == ""


def test_the_client_is_not_even_imported(folder: Path, monkeypatch: pytest.MonkeyPatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "kubernetes"]:
        monkeypatch.delitem(sys.modules, name)
    path = kubeconfig(folder, {"tokenFile": "token"})
    assert Access(path, "", FakeClock()).read().authorization == "Bearer from-file"
    assert "kubernetes" not in sys.modules
