"""The images that the tests ask for, made without a container engine: archives that containerd imports.

All tools stand in one root file system; what the tests know as busybox, nginx and others are names of it.
"""

import hashlib
import io
import json
import platform
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.cluster.programs import built
from tests.e2e.folder import Folder
from tests.e2e.progress import step

E2E = "registry.k8s.io/e2e-test-images"
PAUSE = "registry.k8s.io/pause:3.10.2"
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PAUSE_SOURCE = Path(__file__).with_name("pause.c")
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
LEFT_OUT = ("proc", "sys", "dev", "var/cache/apt", "var/lib/apt/lists")
# A test wants a user who is named in the image.
USERS = "user-defined-in-image:x:1000:1000::/home:/bin/sh\n"
GROUPS = "group-defined-in-image:x:50000:user-defined-in-image\n"


@dataclass(frozen=True, slots=True)
class Image:
    file: str
    layer: str
    names: tuple[str, ...]
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    user: str = ""
    environment: tuple[str, ...] = (PATH,)

    def configuration(self) -> dict[str, object]:
        settings = {
            "Entrypoint": list(self.entrypoint),
            "Cmd": list(self.command),
            "User": self.user,
            "Env": list(self.environment),
        }
        return {key: value for key, value in settings.items() if value}


IMAGES = (
    Image("pause", "pause", (PAUSE, "registry.k8s.io/pause:3.10"), ("/pause",), user="65535:65535"),
    Image("agnhost", "tools", (f"{E2E}/agnhost:2.66.1", f"{E2E}/agnhost:2.55"), ("/agnhost",), ("pause",)),
    Image(
        "tools",
        "tools",
        (
            f"{E2E}/busybox:1.37.0-2",
            f"{E2E}/glibc-dns-testing:2.1.1",
            "registry.k8s.io/build-image/distroless-iptables:v0.9.9",
        ),
        command=("/bin/sh",),
    ),
    # The tests only need somebody who listens on port 80.
    Image("nginx", "tools", (f"{E2E}/nginx:1.27.0-2",), ("/agnhost", "test-webserver")),
    Image("regression", "regression", (f"{E2E}/regression-issue-74839:1.5",), ("/regression-issue-74839",)),
)


def make_images(folder: Folder) -> list[Path]:
    """The archives, made anew when one is missing or a program in them is younger."""
    archives = [folder.images / f"{image.file}.tar" for image in IMAGES]
    programs = [built(name) for name in ("agnhost", "regression-issue-74839")]
    newest = max(program.stat().st_mtime for program in programs)
    if all(archive.exists() and archive.stat().st_mtime > newest for archive in archives):
        return archives
    with step("making the pods' images"):
        folder.images.mkdir(exist_ok=True)
        layers = {
            "pause": _layer_of_one_program(folder, "pause", _compiled_pause(folder)),
            "regression": _layer_of_one_program(folder, "regression", built("regression-issue-74839")),
            "tools": _tools_layer(folder),
        }
        for image, archive in zip(IMAGES, archives, strict=True):
            _write_archive(archive, image, layers[image.layer])
        for layer in layers.values():
            layer.unlink()
    return archives


def _compiled_pause(folder: Folder) -> Path:
    program = folder.images / "pause"
    subprocess.run(["cc", "-O2", "-static", "-o", program, PAUSE_SOURCE], check=True)
    return program


def _layer_of_one_program(folder: Folder, name: str, program: Path) -> Path:
    path = folder.images / f"{name}.layer"
    with tarfile.open(path, "w") as layer:
        layer.add(program, program.name, filter=_as_root)
    return path


def _tools_layer(folder: Folder) -> Path:
    root = folder.pod_system
    for name in ("agnhost", "coredns", "localhost.crt", "localhost.key"):
        shutil.copy(built(name), root / name)
    (root / "agnhost-2").unlink(missing_ok=True)
    (root / "agnhost-2").symlink_to("agnhost")
    (root / "uploads").mkdir(exist_ok=True)
    iperf = root / "usr/local/bin/iperf"
    iperf.unlink(missing_ok=True)
    iperf.symlink_to("/usr/bin/iperf")
    _append_once(root / "etc/passwd", USERS)
    _append_once(root / "etc/group", GROUPS)
    path = folder.images / "tools.layer"
    excluded = [f"--exclude=./{name}/*" for name in LEFT_OUT]
    subprocess.run(["tar", "-C", root, "--numeric-owner", *excluded, "-cf", path, "."], check=True)
    return path


def _append_once(path: Path, line: str) -> None:
    text = path.read_text()
    if line not in text:
        path.write_text(text + line)


def _as_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o755
    return entry


def _write_archive(archive: Path, image: Image, layer: Path) -> None:
    """In the form of `docker save`: a manifest, a configuration, one layer."""
    digest = _digest(layer)
    configuration = json.dumps(
        {
            "architecture": ARCHITECTURES[platform.machine()],
            "os": "linux",
            "config": image.configuration(),
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        }
    ).encode()
    name = f"{hashlib.sha256(configuration).hexdigest()}.json"
    manifest = [{"Config": name, "RepoTags": list(image.names), "Layers": [f"{digest}/layer.tar"]}]
    with tarfile.open(archive, "w") as result:
        _add(result, "manifest.json", json.dumps(manifest).encode())
        _add(result, name, configuration)
        result.add(layer, f"{digest}/layer.tar")


@cache
def _digest(layer: Path) -> str:
    with layer.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))
