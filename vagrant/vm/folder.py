"""Where kernels and the root image are kept between runs: outside the checkout, made anew when it is deleted."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Folder:
    root: Path

    @property
    def archive(self) -> Path:
        return self.root / "archive"

    @property
    def system(self) -> Path:
        """The root file system of all machines, while it is made."""
        return self.root / "system"

    @property
    def image(self) -> Path:
        return self.root / "system.img"

    @property
    def results(self) -> Path:
        """The last reported run of each machine."""
        return self.root / "results"

    def kernel(self, suite: str, package: str) -> Path:
        """Machines may share one."""
        return self.root / "kernels" / f"{suite}-{package}"

    @contextmanager
    def only_one(self) -> Iterator[None]:
        """Waits until no other run prepares anything here."""
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def chosen() -> Folder:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Folder(Path(os.environ.get("KBPF_VM_CACHE") or Path(cache) / "kbpf/vm"))
