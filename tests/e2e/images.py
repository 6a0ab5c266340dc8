"""The images that the tests ask for: all tools stand in one root file system; what the tests know as busybox, nginx and
others are names of it."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.programs import built
from tests.e2e.archive import Image, Layer, Settings, layer_of_program, layer_of_tree, write_archive
from tests.e2e.folder import Folder
from tests.progress import step

E2E = "registry.k8s.io/e2e-test-images"
PAUSE = "registry.k8s.io/pause:3.10.2"
AGNHOST = f"{E2E}/agnhost:2.66.1"
PAUSE_SOURCE = Path(__file__).with_name("pause.c")
# A test wants a user who is named in the image.
USERS = "user-defined-in-image:x:1000:1000::/home:/bin/sh\n"
GROUPS = "group-defined-in-image:x:50000:user-defined-in-image\n"


@dataclass(frozen=True, slots=True)
class PodImage:
    """`file` names the archive, `layer` what is in it."""

    file: str
    layer: str
    names: tuple[str, ...]
    settings: Settings


IMAGES = (
    PodImage("pause", "pause", (PAUSE, "registry.k8s.io/pause:3.10"), Settings(("/pause",), user="65535:65535")),
    PodImage("agnhost", "tools", (AGNHOST, f"{E2E}/agnhost:2.55"), Settings(("/agnhost",), ("pause",))),
    PodImage(
        "tools",
        "tools",
        (
            f"{E2E}/busybox:1.37.0-2",
            f"{E2E}/glibc-dns-testing:2.1.1",
            "registry.k8s.io/build-image/distroless-iptables:v0.9.9",
        ),
        Settings(command=("/bin/sh",)),
    ),
    # The tests only need somebody who listens on port 80.
    PodImage("nginx", "tools", (f"{E2E}/nginx:1.27.0-2",), Settings(("/agnhost", "test-webserver"))),
    PodImage(
        "regression", "regression", (f"{E2E}/regression-issue-74839:1.5",), Settings(("/regression-issue-74839",))
    ),
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
        regression = folder.images / "regression.layer"
        layers = {
            "pause": layer_of_program(folder.images / "pause.layer", _compiled_pause(folder)),
            "regression": layer_of_program(regression, built("regression-issue-74839")),
            "tools": _tools_layer(folder),
        }
        for image, archive in zip(IMAGES, archives, strict=True):
            write_archive(archive, [Image(image.names, image.settings, (layers[image.layer],))])
        for layer in layers.values():
            layer.path.unlink()
    return archives


def _compiled_pause(folder: Folder) -> Path:
    program = folder.images / "pause"
    subprocess.run(["cc", "-O2", "-static", "-o", program, PAUSE_SOURCE], check=True)
    return program


def _tools_layer(folder: Folder) -> Layer:
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
    return layer_of_tree(folder.images / "tools.layer", root)


def _append_once(path: Path, line: str) -> None:
    text = path.read_text()
    if line not in text:
        path.write_text(text + line)
