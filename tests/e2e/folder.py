"""Where the rig keeps things: what is built once, and what lives as long as one cluster.

It must not lie below /run, /var/lib or /var/log, which every node covers with its own.
"""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

COVERED = ("/run", "/var/lib", "/var/log", "/var/run")


@dataclass(frozen=True, slots=True)
class Folder:
    root: Path

    @property
    def system(self) -> Path:
        """The distribution's containerd, runc and CNI plugins, unpacked."""
        return self.root / "system"

    @property
    def pod_system(self) -> Path:
        """The root file system of the pods."""
        return self.root / "pods"

    @property
    def images(self) -> Path:
        return self.root / "images"

    @property
    def results(self) -> Path:
        return self.root / "results"

    @property
    def cluster(self) -> Path:
        """Keys, logs and state of the cluster that runs now; the next one begins without it."""
        return self.root / "cluster"

    @property
    def logs(self) -> Path:
        return self.cluster / "logs"

    @property
    def pids(self) -> Path:
        """One line for each process started: its pid and its name."""
        return self.cluster / "pids"

    def node(self, name: str) -> Path:
        return self.cluster / name

    def record(self, pid: int, name: str) -> None:
        with self.pids.open("a") as pids:
            print(pid, name, file=pids)

    def begin_cluster(self) -> None:
        shutil.rmtree(self.cluster, ignore_errors=True)
        self.logs.mkdir(parents=True)


def chosen() -> Folder:
    """KBPF_E2E, else below the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    root = Path(os.environ.get("KBPF_E2E", cache / "kbpf" / "e2e")).resolve()
    if str(root).startswith(COVERED):
        raise SystemExit(f"e2e: {root} lies below a directory that nodes cover: set KBPF_E2E to another")
    root.mkdir(parents=True, exist_ok=True)
    return Folder(root)
