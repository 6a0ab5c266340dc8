"""A real etcd and kube-apiserver on loopback, with throw-away certificates, in a folder that the caller gives.

The API server knows one user, who may do everything; its certificate is its own authority. No controllers run: what
is created stays exactly as it was written. `Api` talks to it, proxies are given `kubeconfig`.
"""

import base64
import http.client
import json
import secrets
import socket
import ssl
import subprocess
from pathlib import Path

from tests.cluster.api import Api, Tree
from tests.cluster.programs import Program, built

SERVICE_RANGES = "10.96.0.0/12,fd96::/108"
START_TIMEOUT_S = 60


class ControlPlane:
    def __init__(self, folder: Path, authorization: str = "AlwaysAllow") -> None:
        """With `RBAC`, the owner of `stranger_token` may do nothing."""
        self.folder = folder
        self.authorization = authorization
        self.token, self.stranger_token = secrets.token_hex(16), secrets.token_hex(16)
        self.port, self.etcd_port, peer_port = free_ports(3)
        self._make_secrets()
        self.programs = [self._start_etcd(peer_port), self._start_api_server()]
        self.api = Api("127.0.0.1", self.port, ssl.create_default_context(cafile=folder / "server.crt"), self.token)
        try:
            self.programs[1].wait_until(self._is_ready, "ready API server", timeout_s=START_TIMEOUT_S)
        except BaseException:
            self.stop()
            raise

    def kubeconfig(self, port: int | None = None, token: str | None = None) -> Path:
        """Written for a client that reaches the server at `port` of its own loopback (default: the server's own)."""
        number = port or self.port
        path = self.folder / f"kubeconfig-{number}{'-stranger' if token else ''}"
        cluster = {
            "server": f"https://127.0.0.1:{number}",
            "certificate-authority": str(self.folder / "server.crt"),
        }
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "tests", "cluster": cluster}],
                    "users": [{"name": "tester", "user": {"token": token or self.token}}],
                    "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "tester"}}],
                    "current-context": "tests",
                }
            )
        )
        return path

    def kill_api_server(self) -> None:
        """As by a crash: connections break, and nobody listens any more."""
        self.programs[1].process.kill()
        self.programs[1].process.wait()

    def start_api_server(self) -> None:
        """Again, on the same store. Returns when it is ready."""
        self.programs[1] = self._start_api_server()
        self.api.reconnect()
        self.programs[1].wait_until(self.api.is_ready, "ready API server", timeout_s=START_TIMEOUT_S)

    def compact(self) -> None:
        """Let etcd forget how its present state came about, as it does every few minutes in a real cluster."""
        revision = self.etcd("range", {"key": b64(b"/"), "limit": 1})["header"]["revision"]
        self.etcd("compaction", {"revision": revision, "physical": True})

    def etcd(self, operation: str, order: Tree) -> Tree:
        connection = http.client.HTTPConnection("127.0.0.1", self.etcd_port, timeout=10)
        try:
            connection.request("POST", f"/v3/kv/{operation}", json.dumps(order))
            answer: Tree = json.loads(connection.getresponse().read())
        finally:
            connection.close()
        return answer

    def stop(self) -> None:
        """The API server before etcd: it hangs on SIGTERM once that is gone."""
        self.api.close()
        for program in reversed(self.programs):
            program.stop()

    def _is_ready(self) -> bool:
        """With the one Service that the server makes for itself: from then on, all others are the tests' own."""
        return self.api.is_ready() and bool(self.api.list_of("Service"))

    def _make_secrets(self) -> None:
        """One key serves the server's certificate and signs service account tokens, which nobody asks for here."""
        key, certificate = self.folder / "server.key", self.folder / "server.crt"
        request = ["openssl", "req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=kube-apiserver"]
        request += ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
        request += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
        subprocess.run(request, check=True, capture_output=True)
        users = f"{self.token},tester,tester,system:masters\n{self.stranger_token},stranger,stranger\n"
        (self.folder / "tokens.csv").write_text(users)

    def _start_etcd(self, peer_port: int) -> Program:
        client, peer = f"http://127.0.0.1:{self.etcd_port}", f"http://127.0.0.1:{peer_port}"
        return Program(
            self.folder / "etcd.log",
            [
                built("etcd"),
                f"--data-dir={self.folder / 'etcd'}",
                "--unsafe-no-fsync",
                f"--listen-client-urls={client}",
                f"--advertise-client-urls={client}",
                f"--listen-peer-urls={peer}",
                f"--initial-advertise-peer-urls={peer}",
                f"--initial-cluster=default={peer}",
                "--log-level=warn",
            ],
        )

    def _start_api_server(self) -> Program:
        key, certificate = self.folder / "server.key", self.folder / "server.crt"
        return Program(
            self.folder / "kube-apiserver.log",
            [
                built("kube-apiserver"),
                f"--etcd-servers=http://127.0.0.1:{self.etcd_port}",
                "--bind-address=127.0.0.1",
                "--advertise-address=127.0.0.1",
                # An endpoint of its own on loopback would be refused; and no test wants one that comes by itself.
                "--endpoint-reconciler-type=none",
                f"--secure-port={self.port}",
                f"--tls-cert-file={certificate}",
                f"--tls-private-key-file={key}",
                f"--token-auth-file={self.folder / 'tokens.csv'}",
                f"--authorization-mode={self.authorization}",
                # As in every cluster whose service proxy is a DaemonSet.
                "--allow-privileged=true",
                f"--service-cluster-ip-range={SERVICE_RANGES}",
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-account-key-file={certificate}",
                f"--service-account-signing-key-file={key}",
                "--disable-admission-plugins=ServiceAccount",
                "--profiling=false",
            ],
        )


def b64(text: bytes) -> str:
    return base64.b64encode(text).decode()


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    numbers = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return numbers
