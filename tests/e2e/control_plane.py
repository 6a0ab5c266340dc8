"""etcd, API server, controller manager, scheduler and DNS of the cluster, all in the control plane's namespace."""

import json
import subprocess
from typing import Any

from tests.cluster.programs import Program, built
from tests.e2e.certificates import API_SERVER, Certificates
from tests.e2e.folder import Folder
from tests.e2e.network import CONTROL, CONTROL_ADDRESS, SERVICE_CIDR

START_TIMEOUT_S = 60
ETCD = "http://127.0.0.1:2379"
ETCD_PEER = "http://127.0.0.1:2380"
DNS_ADDRESS = "10.96.0.10"
COREFILE = """.:53 {{
    errors
    ready :8181
    kubernetes cluster.local in-addr.arpa ip6.arpa {{
        kubeconfig {kubeconfig} e2e
        pods insecure
        ttl 5
    }}
    cache 5
}}
"""


class ControlPlane:
    def __init__(self, folder: Folder, certificates: Certificates) -> None:
        self.folder = folder
        self.certificates = certificates
        self.programs: list[Program] = []

    def start(self) -> None:
        self._start("etcd", *self._etcd_flags())
        api_server = self._start("kube-apiserver", *self._api_server_flags())
        api_server.wait_until(self._is_ready, "ready API server", timeout_s=START_TIMEOUT_S, interval_s=0.5)
        self._start("kube-controller-manager", *self._controller_manager_flags())
        self._start("kube-scheduler", *self._own_kubeconfig("kube-scheduler"))

    def start_dns(self) -> None:
        """After the nodes, so that its Service, which the proxies must serve, exists from the start."""
        corefile = self.folder.cluster / "Corefile"
        corefile.write_text(COREFILE.format(kubeconfig=self.certificates.kubeconfig("coredns")))
        self.apply(*_dns_objects())
        self._start("coredns", "-conf", str(corefile))

    def stop(self) -> None:
        """The API server before etcd: it hangs on SIGTERM once that is gone."""
        for program in reversed(self.programs):
            program.stop()
        self.programs.clear()

    # -- kubectl -----------------------------------------------------------------------------------------------------

    def command(self, *arguments: str) -> list[str]:
        """kubectl where it reaches the API server."""
        kubeconfig = f"--kubeconfig={self.certificates.kubeconfig('admin')}"
        cache = f"--cache-dir={self.folder.cluster / 'kubectl'}"
        return ["nsenter", f"--net={CONTROL.path}", str(built("kubectl")), kubeconfig, cache, *arguments]

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Its output. Raises CalledProcessError, with its errors shown, when it fails."""
        return subprocess.run(
            self.command(*arguments), input=stdin, stdout=subprocess.PIPE, text=True, check=True
        ).stdout

    def try_kubectl(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Whatever comes of it; its errors are part of the output."""
        return subprocess.run(
            self.command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )

    def apply(self, *objects: dict[str, Any]) -> None:
        items = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.kubectl("apply", "--server-side", "--filename=-", stdin=json.dumps(items))

    def get(self, *arguments: str) -> Any:
        return json.loads(self.kubectl("get", "--output=json", *arguments))

    # -- flags -------------------------------------------------------------------------------------------------------

    def _start(self, name: str, *flags: str) -> Program:
        program = Program(self.folder.logs / f"{name}.log", [built(name), *flags], namespace=CONTROL.name)
        self.programs.append(program)
        self.folder.record(program.process.pid, name)
        return program

    def _is_ready(self) -> bool:
        certificates = self.certificates
        command = ["nsenter", f"--net={CONTROL.path}", "curl", "--silent", "--fail", f"{API_SERVER}/readyz"]
        command += ["--cacert", str(certificates.authority), "--cert", str(certificates.certificate("admin"))]
        command += ["--key", str(certificates.key("admin"))]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def _etcd_flags(self) -> tuple[str, ...]:
        return (
            f"--data-dir={self.folder.cluster / 'etcd'}",
            "--unsafe-no-fsync",
            "--log-level=warn",
            f"--listen-client-urls={ETCD}",
            f"--advertise-client-urls={ETCD}",
            f"--listen-peer-urls={ETCD_PEER}",
            f"--initial-advertise-peer-urls={ETCD_PEER}",
            f"--initial-cluster=default={ETCD_PEER}",
        )

    def _api_server_flags(self) -> tuple[str, ...]:
        certificates = self.certificates
        return (
            f"--etcd-servers={ETCD}",
            f"--advertise-address={CONTROL_ADDRESS}",
            "--bind-address=0.0.0.0",
            "--secure-port=6443",
            f"--service-cluster-ip-range={SERVICE_CIDR}",
            "--authorization-mode=Node,RBAC",
            "--allow-privileged=true",
            "--profiling=false",
            f"--client-ca-file={certificates.authority}",
            f"--tls-cert-file={certificates.certificate('kube-apiserver')}",
            f"--tls-private-key-file={certificates.key('kube-apiserver')}",
            f"--kubelet-certificate-authority={certificates.authority}",
            f"--kubelet-client-certificate={certificates.certificate('kubelet-client')}",
            f"--kubelet-client-key={certificates.key('kubelet-client')}",
            "--kubelet-preferred-address-types=InternalIP",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            f"--service-account-key-file={certificates.folder / 'accounts.pub'}",
            f"--service-account-signing-key-file={certificates.key('service-accounts')}",
            # Aggregated API servers are among the tests.
            "--enable-aggregator-routing=true",
            f"--requestheader-client-ca-file={certificates.authority}",
            "--requestheader-allowed-names=front-proxy-client",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-username-headers=X-Remote-User",
            f"--proxy-client-cert-file={certificates.certificate('front-proxy')}",
            f"--proxy-client-key-file={certificates.key('front-proxy')}",
        )

    def _controller_manager_flags(self) -> tuple[str, ...]:
        certificates = self.certificates
        return (
            *self._own_kubeconfig("kube-controller-manager"),
            f"--service-account-private-key-file={certificates.key('service-accounts')}",
            f"--root-ca-file={certificates.authority}",
            f"--cluster-signing-cert-file={certificates.authority}",
            f"--cluster-signing-key-file={certificates.key('ca')}",
            "--use-service-account-credentials=true",
            # The nodes' pod ranges are fixed: the wires lead there.
            "--allocate-node-cidrs=false",
        )

    def _own_kubeconfig(self, user: str) -> tuple[str, ...]:
        path = self.certificates.kubeconfig(user)
        flags = ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
        return (*(f"--{flag}={path}" for flag in flags), "--leader-elect=false", "--bind-address=127.0.0.1")


def _dns_objects() -> tuple[dict[str, Any], ...]:
    """DNS runs beside the control plane, so that a proxy which does not work takes DNS with it."""
    ports = [{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53, "protocol": "TCP"}]
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "kube-dns", "namespace": "kube-system", "labels": {"k8s-app": "kube-dns"}},
        "spec": {"clusterIP": DNS_ADDRESS, "ports": ports},
    }
    endpoints = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "kube-dns",
            "namespace": "kube-system",
            "labels": {"kubernetes.io/service-name": "kube-dns"},
        },
        "addressType": "IPv4",
        "ports": ports,
        "endpoints": [{"addresses": [CONTROL_ADDRESS], "conditions": {"ready": True}}],
    }
    return service, endpoints
