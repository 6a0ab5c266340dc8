"""kbpf as its DaemonSet on the cluster, handled as operators do: with kubectl alone."""

from pathlib import Path
from typing import Any, NamedTuple

from tests.cluster.programs import ProgramFailed
from tests.e2e.control_plane import ControlPlane
from tests.e2e.kustomization import NAMESPACE

NAME = "daemonset/kbpf"
PODS = "--selector=app.kubernetes.io/name=kbpf"
IN_NAMESPACE = f"--namespace={NAMESPACE}"
ROLLOUT_TIMEOUT = "--timeout=180s"


class Readiness(NamedTuple):
    ready: int
    wanted: int
    restarts: int

    @property
    def is_complete(self) -> bool:
        return self.ready == self.wanted > 0 and not self.restarts


class DaemonSet:
    def __init__(self, control_plane: ControlPlane) -> None:
        self._control_plane = control_plane
        self._logs = control_plane.folder.logs

    def apply(self, kustomization: Path) -> Readiness:
        """How many pods are ready when all of them should be."""
        self._control_plane.kubectl("apply", f"--kustomize={kustomization}")
        return self._rolled_out()

    def roll_out(self, image: str) -> Readiness:
        self._control_plane.kubectl("set", "image", NAME, f"kbpf={image}", IN_NAMESPACE)
        return self._rolled_out()

    def delete(self, kustomization: Path) -> None:
        """Returns when the last pod has gone."""
        self.save_logs()
        self._control_plane.kubectl("delete", f"--kustomize={kustomization}")
        self._control_plane.kubectl("wait", "--for=delete", "pod", PODS, IN_NAMESPACE, "--timeout=60s")

    def save_logs(self) -> None:
        """What the pods said, for those who look for the reason of a failure: the nodes keep nothing."""
        for pod in self._pods():
            name = pod["metadata"]["name"]
            logs = self._control_plane.try_kubectl("logs", name, IN_NAMESPACE, "--all-containers", "--timestamps")
            (self._logs / f"{name}.log").write_text(logs.stdout)

    def _rolled_out(self) -> Readiness:
        status = self._control_plane.try_kubectl("rollout", "status", NAME, IN_NAMESPACE, ROLLOUT_TIMEOUT)
        if status.returncode:
            described = self._control_plane.try_kubectl("describe", "pod", PODS, IN_NAMESPACE).stdout
            logs = self._control_plane.try_kubectl("logs", PODS, IN_NAMESPACE, "--all-containers", "--tail=30").stdout
            raise ProgramFailed(f"the DaemonSet does not get ready: {status.stdout}\n{described}\n{logs}")
        return self._readiness()

    def _readiness(self) -> Readiness:
        status = self._control_plane.get(NAME, IN_NAMESPACE)["status"]
        restarts = sum(one["restartCount"] for pod in self._pods() for one in pod["status"]["containerStatuses"])
        return Readiness(status["numberReady"], status["desiredNumberScheduled"], restarts)

    def _pods(self) -> list[dict[str, Any]]:
        pods: list[dict[str, Any]] = self._control_plane.get("pods", PODS, IN_NAMESPACE)["items"]
        return pods
