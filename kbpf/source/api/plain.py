"""The ways to the API server that nearly every node has: a service account, or a kubeconfig that names files.

Called by `access`, which has the kubernetes client read whatever is not understood here, and say what is wrong with it:
importing the client takes longer and more memory than the rules of a thousand Services. Nothing here raises.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec
import yaml

from kbpf.model.address import host_port

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
PROXIES = frozenset({"http_proxy", "https_proxy", "all_proxy"})
NOT_PLAIN = (OSError, LookupError, ValueError, yaml.YAMLError, msgspec.ValidationError)
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class PlainAccess(NamedTuple):
    url: str
    token: str
    authority: str
    certificate: str | None = None
    key: str | None = None


class _Cluster(msgspec.Struct, forbid_unknown_fields=True, rename="kebab"):
    server: str
    certificate_authority: str


class _User(msgspec.Struct, forbid_unknown_fields=True, rename="kebab"):
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    client_certificate: str = ""
    client_key: str = ""


class _Context(msgspec.Struct):
    cluster: str
    user: str


class _NamedCluster(msgspec.Struct):
    name: str
    cluster: _Cluster


class _NamedUser(msgspec.Struct):
    name: str
    user: _User


class _NamedContext(msgspec.Struct):
    name: str
    context: _Context


class _Kubeconfig(msgspec.Struct, rename="kebab"):
    clusters: list[_NamedCluster]
    users: list[_NamedUser]
    contexts: list[_NamedContext]
    current_context: str


_Named = TypeVar("_Named", _NamedCluster, _NamedUser, _NamedContext)


def plain_access(kubeconfig: Path | None) -> PlainAccess | None:
    """What the file says; without one, what a pod is given. None: not so plain, or wrong."""
    if PROXIES & {name.lower() for name in os.environ}:
        return None
    try:
        return _from_kubeconfig(kubeconfig) if kubeconfig else _from_service_account()
    except NOT_PLAIN:
        return None


def _from_kubeconfig(path: Path) -> PlainAccess | None:
    config = msgspec.convert(yaml.load(path.read_bytes(), LOADER), _Kubeconfig)  # noqa: S506  (it is a safe one)
    context = _find(config.contexts, config.current_context).context
    cluster = _find(config.clusters, context.cluster).cluster
    user = _find(config.users, context.user).user
    if not cluster.server.startswith("https://") or (user.token and user.token_file):
        return None
    token = (path.parent / user.token_file).read_text() if user.token_file else user.token
    files = (cluster.certificate_authority, user.client_certificate, user.client_key)
    authority, certificate, key = (str(path.parent / file) if file else None for file in files)
    if authority is None or not all(map(os.path.isfile, filter(None, (authority, certificate, key)))):
        return None
    return PlainAccess(cluster.server.rstrip("/"), token.strip(), authority, certificate, key)


def _from_service_account() -> PlainAccess | None:
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], int(os.environ["KUBERNETES_SERVICE_PORT"])
    token, authority = (SERVICE_ACCOUNT / "token").read_text().strip(), SERVICE_ACCOUNT / "ca.crt"
    if not host or not token or not authority.stat().st_size:
        return None
    return PlainAccess(f"https://{host_port(host, port)}", token, str(authority))


def is_own_service(url: str) -> bool:
    """Does the URL lead to the API server by way of its Service? kubelet tells each pod that one's address.

    It stays as kubelet said when the manifests give KUBERNETES_SERVICE_HOST another value.
    """
    service = os.environ.get("KUBERNETES_PORT", "")
    return url.partition("://")[2] == service.partition("://")[2] != ""


def _find(all_of_them: Iterable[_Named], name: str) -> _Named:
    """The first one, as the client takes it. Raises LookupError."""
    found = next((each for each in all_of_them if each.name == name), None)
    if found is None:
        raise LookupError(name)
    return found
