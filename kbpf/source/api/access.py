"""How to reach the API server and with which credentials: a kubeconfig, the service account of a pod, or just a URL.

The one file that imports the kubernetes client, for what is not `plain`: it reads configurations of every kind, runs
exec plug-ins and goes through proxies. Everything is read anew from time to time and after each 401, because tokens and
certificates are replaced on disk while the process runs.
"""

import logging
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from urllib3 import PoolManager
from urllib3.connection import HTTPConnection

from kbpf.clock import Clock
from kbpf.errors import ApiFailure, KbpfError, UsageError
from kbpf.source.api.plain import PlainAccess, plain_access

if TYPE_CHECKING:
    from kubernetes.client import Configuration

log = logging.getLogger(__name__)

READ_AGAIN_AFTER_S = 60.0
CONNECTIONS = 4
"""One for each resource, and one to spare."""
SOCKET_OPTIONS: tuple[tuple[int, int, int], ...] = (
    *HTTPConnection.default_socket_options,
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
"""A peer that vanished is noticed after a minute."""


class Session(msgspec.Struct, frozen=True):
    url: str
    authorization: str
    """The value of the header; empty: certificates are all there is."""
    pool: PoolManager


class Access:
    """Shared by the threads of all resources."""

    def __init__(self, kubeconfig: Path | None, master: str, clock: Clock) -> None:
        self._kubeconfig = kubeconfig
        self._master = master if "://" in master or not master else f"http://{master}"
        self._clock = clock
        self._lock = threading.Lock()  # reading writes temporary files and may run a program: once is enough
        self._session: Session | None = None
        self._read_at = 0.0

    def read(self) -> Session:
        """Read everything now. Raises UsageError when it cannot be used."""
        with self._lock:
            return self._read()

    def session(self) -> Session:
        """What a request is to be made with. Raises ApiFailure when there is nothing."""
        with self._lock:
            if self._session is not None and self._clock.monotonic() - self._read_at < READ_AGAIN_AFTER_S:
                return self._session
            try:
                return self._read()
            except KbpfError as error:
                if self._session is None:
                    raise ApiFailure(str(error)) from error
                log.warning(f"{error}; going on with what was read before")
                self._read_at = self._clock.monotonic()
                return self._session

    def renew(self, used: Session) -> None:
        """The server did not accept `used`: read everything again before the next request."""
        with self._lock:
            if self._session is used:
                self._read_at = self._clock.monotonic() - READ_AGAIN_AFTER_S

    def _read(self) -> Session:
        plain = plain_access(self._kubeconfig) if self._kubeconfig or not self._master else None
        self._session = plain_session(plain, self._master) if plain else session_of(self._configuration())
        self._read_at = self._clock.monotonic()
        return self._session

    def _configuration(self) -> "Configuration":
        from kubernetes.client import Configuration

        configuration = Configuration(connection_pool_maxsize=CONNECTIONS, retries=0)
        if self._kubeconfig is not None:
            read_kubeconfig(self._kubeconfig, configuration)
        elif not self._master:
            read_service_account(configuration)
        if self._master:
            configuration.host = self._master
        return configuration


def plain_session(plain: PlainAccess, master: str) -> Session:
    """`master` takes the place of the address alone."""
    pool = PoolManager(
        maxsize=CONNECTIONS,
        retries=0,
        socket_options=SOCKET_OPTIONS,
        cert_reqs="CERT_REQUIRED",
        ca_certs=plain.authority,
        cert_file=plain.certificate,
        key_file=plain.key,
    )
    return Session(master.rstrip("/") or plain.url, f"Bearer {plain.token}" if plain.token else "", pool)


def session_of(configuration: "Configuration") -> Session:
    """Raises UsageError when a certificate or key cannot be used."""
    from kubernetes.client.rest import RESTClientObject

    # The client's own way to renew a token also puts back the address that --master overrides.
    configuration.refresh_api_key_hook = None
    configuration.socket_options = SOCKET_OPTIONS
    # Newlines at the end of token files are common, and no header may hold one.
    authorization = str(configuration.auth_settings().get("BearerToken", {}).get("value") or "").strip()
    pool = RESTClientObject(configuration).pool_manager
    return Session(configuration.host.rstrip("/"), authorization, pool)


def read_kubeconfig(path: Path, configuration: "Configuration") -> None:
    from kubernetes.config import ConfigException, load_kube_config
    from yaml import YAMLError

    try:
        path.read_bytes()  # the client says of any file that it cannot read only that it holds no configuration
    except OSError as error:
        raise UsageError(f"--kubeconfig {path}: {error.strerror or error}") from error
    try:
        load_kube_config(str(path), client_configuration=configuration, persist_config=False)  # type: ignore[no-untyped-call]
    except (ConfigException, YAMLError, OSError) as error:
        raise UsageError(f"--kubeconfig {path}: {_in_one_line(error)}") from error
    except Exception as error:  # the client does not expect values of the wrong type
        raise UsageError(f"--kubeconfig {path}: is not a kubeconfig: {_in_one_line(error)}") from error


def read_service_account(configuration: "Configuration") -> None:
    from kubernetes.config import ConfigException, load_incluster_config

    try:
        load_incluster_config(configuration)  # type: ignore[no-untyped-call]
    except (ConfigException, OSError) as error:
        raise UsageError(
            "nothing to serve: this is no pod of a cluster, so name an API server with --kubeconfig FILE, "
            f"or manifests with --manifests PATH ({_in_one_line(error)})"
        ) from error


def _in_one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
