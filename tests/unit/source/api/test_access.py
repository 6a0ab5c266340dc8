"""Every way to be told about the API server, and what becomes of a wrong one: one line."""

import base64
import json
from pathlib import Path

import pytest

from kbpf.clock import FakeClock
from kbpf.errors import ApiFailure, UsageError
from kbpf.source.api.access import READ_AGAIN_AFTER_S, Access
from tests.logs import capture_logs

URL = "https://10.0.0.1:6443"


def kubeconfig(folder: Path, user: object = None, **cluster: object) -> Path:
    path = folder / "kubeconfig"
    path.write_text(
        json.dumps(
            {
                "clusters": [{"name": "c", "cluster": {"server": URL, **cluster}}],
                "users": [{"name": "u", "user": user or {"token": "secret"}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            }
        )
    )
    return path


def access(path: Path | None, master: str = "", clock: FakeClock | None = None) -> Access:
    return Access(path, master, clock or FakeClock())


def test_a_kubeconfig_gives_address_and_credentials(tmp_path):
    session = access(kubeconfig(tmp_path)).read()
    assert (session.url, session.authorization) == (URL, "Bearer secret")


@pytest.mark.parametrize(
    ("master", "url"), [("https://10.9.9.9:6443/", "https://10.9.9.9:6443"), ("10.9.9.9:8080", "http://10.9.9.9:8080")]
)
def test_the_master_overrides_the_address_alone(tmp_path, master, url):
    session = access(kubeconfig(tmp_path), master).read()
    assert (session.url, session.authorization) == (url, "Bearer secret")
    assert access(None, master).read().authorization == ""


def test_a_token_that_is_replaced_on_disk_is_used_after_a_minute_or_a_refusal(tmp_path):
    token = tmp_path / "token"
    token.write_text("first\n")
    clock = FakeClock()
    reader = access(kubeconfig(tmp_path, {"tokenFile": "token"}), clock=clock)
    reader.read()
    token.write_text("second\n")
    assert reader.session().authorization == "Bearer first"
    clock.advance(READ_AGAIN_AFTER_S)
    used = reader.session()
    assert used.authorization == "Bearer second"
    token.write_text("third\n")
    assert reader.session() is used
    reader.renew(used)
    assert reader.session().authorization == "Bearer third"
    reader.renew(used)  # by another thread, which was refused before
    assert reader.session().authorization == "Bearer third"


def test_a_file_that_is_being_rewritten_leaves_what_was_read_before_in_use(tmp_path):
    clock = FakeClock()
    path = kubeconfig(tmp_path)
    reader = access(path, clock=clock)
    used = reader.read()
    path.write_text("{")
    clock.advance(READ_AGAIN_AFTER_S)
    with capture_logs() as logs:
        assert reader.session() is used
        assert reader.session() is used
    assert len(logs) == 1
    assert "going on with what was read before" in logs[0]["event"]


def test_an_exec_plug_in_provides_the_token(tmp_path):
    plug_in = tmp_path / "plug-in"
    answer = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": "from-plug-in"},
    }
    plug_in.write_text(f"#!/bin/sh\ncat <<'END'\n{json.dumps(answer)}\nEND\n")
    plug_in.chmod(0o755)
    command = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plug_in)}
    assert access(kubeconfig(tmp_path, {"exec": command})).read().authorization == "Bearer from-plug-in"


def test_the_service_account_of_a_pod_is_used_when_nothing_is_named(tmp_path, monkeypatch):
    from kubernetes.config import incluster_config

    (tmp_path / "token").write_text("pod-token\n")
    (tmp_path / "ca.crt").write_text("any")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd96::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    session = access(None).read()
    assert (session.url, session.authorization.lower()) == ("https://[fd96::1]:443", "bearer pod-token")


def test_outside_of_a_cluster_with_nothing_named_it_is_said_what_to_name(monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(UsageError, match=r"name an API server with --kubeconfig FILE"):
        access(None).read()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a: [", "while parsing"),
        ("{}", "current-context"),
        ("text", "is not a kubeconfig"),
        ("", "file is empty"),
        ("clusters: 5\ncontexts: 7\ncurrent-context: x", "is not a kubeconfig"),
    ],
)
def test_a_file_that_is_no_kubeconfig_is_one_line(tmp_path, content, words):
    path = tmp_path / "kubeconfig"
    path.write_text(content)
    with pytest.raises(UsageError) as error:
        access(path).read()
    assert str(error.value).startswith(f"--kubeconfig {path}: ")
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("path", [Path("/nonexistent/kubeconfig"), Path("/")])
def test_a_file_that_cannot_be_read_is_one_line(path):
    with pytest.raises(UsageError, match=f"--kubeconfig {path}: (No such file|Is a directory)"):
        access(path).read()


def test_a_certificate_authority_that_is_missing_is_one_line(tmp_path):
    with pytest.raises(UsageError, match=r"File does not exist: .*/ca\.crt"):
        access(kubeconfig(tmp_path, **{"certificate-authority": "ca.crt"})).read()


def test_inline_certificates_are_written_once_not_with_each_reading(tmp_path):
    from kubernetes.config import kube_config

    ca = base64.b64encode(b"certificate " + str(tmp_path).encode()).decode()
    clock = FakeClock()
    reader = access(kubeconfig(tmp_path, **{"certificate-authority-data": ca}), clock=clock)
    reader.read()
    files = len(kube_config._temp_files)
    for _ in range(20):
        clock.advance(READ_AGAIN_AFTER_S)
        reader.session()
    assert len(kube_config._temp_files) == files


def test_without_anything_read_before_a_request_fails_and_is_tried_again(tmp_path):
    with pytest.raises(ApiFailure, match="No such file"):
        access(tmp_path / "kubeconfig").session()
