"""Throw-away keys: one authority, a certificate for everybody who talks to the API server, and kubeconfigs."""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.network import CONTROL_ADDRESS, NodeAddresses

API_SERVER = f"https://{CONTROL_ADDRESS}:6443"
CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
API_SERVER_NAMES = (
    f"IP:{CONTROL_ADDRESS}",
    "IP:10.96.0.1",
    "IP:127.0.0.1",
    "DNS:kubernetes",
    "DNS:kubernetes.default",
    "DNS:kubernetes.default.svc",
    "DNS:kubernetes.default.svc.cluster.local",
)


@dataclass(frozen=True, slots=True)
class Certificates:
    folder: Path

    @property
    def authority(self) -> Path:
        return self.folder / "ca.crt"

    def certificate(self, name: str) -> Path:
        return self.folder / f"{name}.crt"

    def key(self, name: str) -> Path:
        return self.folder / f"{name}.key"

    def kubeconfig(self, name: str) -> Path:
        return self.folder / f"{name}.kubeconfig"

    def create(self, nodes: list[NodeAddresses]) -> None:
        self.folder.mkdir(parents=True)
        _openssl("req", "-x509", *CURVE, "-days", "30", "-subj", "/CN=e2e", *self._files("ca"))
        self._issue("kube-apiserver", "/CN=kube-apiserver", API_SERVER_NAMES)
        self._issue("kubelet-client", "/O=system:masters/CN=kube-apiserver-kubelet-client")
        self._issue("front-proxy", "/CN=front-proxy-client")
        for user, subject in _USERS.items():
            self._issue(user, subject)
        for node in nodes:
            names = (f"IP:{node.v4}", f"IP:{node.v6}", f"DNS:{node.name}")
            self._issue(node.name, f"/O=system:nodes/CN=system:node:{node.name}", names)
        for user in (*_USERS, *(node.name for node in nodes)):
            self._write_kubeconfig(
                user, {"client-certificate": str(self.certificate(user)), "client-key": str(self.key(user))}
            )
        _openssl("genpkey", "-algorithm", "EC", *CURVE[2:4], "-out", str(self.key("service-accounts")))
        _openssl("pkey", "-in", str(self.key("service-accounts")), "-pubout", "-out", str(self.folder / "accounts.pub"))

    def write_token_kubeconfig(self, name: str, token: str) -> Path:
        self._write_kubeconfig(name, {"token": token})
        return self.kubeconfig(name)

    def _files(self, name: str) -> tuple[str, ...]:
        return ("-keyout", str(self.key(name)), "-out", str(self.certificate(name)))

    def _issue(self, name: str, subject: str, alternative_names: Sequence[str] = ()) -> None:
        extensions = ["keyUsage=digitalSignature", "extendedKeyUsage=serverAuth,clientAuth"]
        if alternative_names:
            extensions.append(f"subjectAltName={','.join(alternative_names)}")
        options = [word for extension in extensions for word in ("-addext", extension)]
        signed_by = ["-CA", str(self.authority), "-CAkey", str(self.key("ca"))]
        _openssl("req", "-x509", *CURVE, "-days", "30", "-subj", subject, *options, *signed_by, *self._files(name))

    def _write_kubeconfig(self, name: str, user: dict[str, str]) -> None:
        cluster = {"server": API_SERVER, "certificate-authority": str(self.authority)}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "e2e", "cluster": cluster}],
            "users": [{"name": name, "user": user}],
            "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": name}}],
            "current-context": "e2e",
        }
        self.kubeconfig(name).write_text(json.dumps(content))


_USERS = {
    "admin": "/O=system:masters/CN=admin",
    "kube-controller-manager": "/CN=system:kube-controller-manager",
    "kube-scheduler": "/CN=system:kube-scheduler",
    "kube-proxy": "/CN=system:kube-proxy",
    "coredns": "/O=system:masters/CN=coredns",
}


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
