"""Images without a container engine: archives in the form of `docker save`, which containerd imports.

`images` makes those that the tests ask for, `own_image` kbpf's. A layer is a tar file; an archive may hold several
images that share layers, and holds each layer once.
"""

import hashlib
import io
import json
import platform
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
LEFT_OUT = ("proc", "sys", "dev", "var/cache/apt", "var/lib/apt/lists")


@dataclass(frozen=True, slots=True)
class Settings:
    """How a container of an image is started."""

    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    user: str = ""
    environment: tuple[str, ...] = (PATH,)
    labels: Mapping[str, str] = field(default_factory=dict)

    def configuration(self) -> dict[str, object]:
        settings = {
            "Entrypoint": list(self.entrypoint),
            "Cmd": list(self.command),
            "User": self.user,
            "Env": list(self.environment),
            "Labels": dict(self.labels),
        }
        return {key: value for key, value in settings.items() if value}


@dataclass(frozen=True, slots=True)
class Layer:
    path: Path
    digest: str

    @property
    def entry(self) -> str:
        """Its name in an archive."""
        return f"{self.digest}/layer.tar"


@dataclass(frozen=True, slots=True)
class Image:
    names: tuple[str, ...]
    settings: Settings
    layers: tuple[Layer, ...]

    def configuration(self) -> bytes:
        return json.dumps(
            {
                "architecture": ARCHITECTURES[platform.machine()],
                "os": "linux",
                "config": self.settings.configuration(),
                "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer.digest}" for layer in self.layers]},
            }
        ).encode()


def layer_of_tree(path: Path, root: Path) -> Layer:
    """A whole root file system, without what is mounted or made anew in every container."""
    excluded = [f"--exclude=./{name}/*" for name in LEFT_OUT]
    subprocess.run(["tar", "-C", root, "--numeric-owner", *excluded, "-cf", path, "."], check=True)
    return _layer(path)


def layer_of_program(path: Path, program: Path) -> Layer:
    with tarfile.open(path, "w") as layer:
        layer.add(program, program.name, filter=_as_root)
    return _layer(path)


def layer_of_files(path: Path, files: Mapping[str, str]) -> Layer:
    """Texts by their paths in the image. An empty file named `.wh.NAME` takes NAME of the layers below away."""
    with tarfile.open(path, "w") as layer:
        for name, text in sorted(files.items()):
            _add(layer, name, text.encode())
    return _layer(path)


def write_archive(archive: Path, images: Sequence[Image]) -> None:
    """Made aside and moved in place when it is whole."""
    unfinished = archive.with_suffix(".unfinished")
    configurations = [(image, image.configuration()) for image in images]
    manifest = [
        {
            "Config": _configuration_entry(configuration),
            "RepoTags": list(image.names),
            "Layers": [layer.entry for layer in image.layers],
        }
        for image, configuration in configurations
    ]
    layers = {layer.entry: layer.path for image in images for layer in image.layers}
    with tarfile.open(unfinished, "w") as result:
        _add(result, "manifest.json", json.dumps(manifest).encode())
        for _, configuration in configurations:
            _add(result, _configuration_entry(configuration), configuration)
        for entry, path in layers.items():
            result.add(path, entry)
    unfinished.rename(archive)


def _configuration_entry(configuration: bytes) -> str:
    return f"{hashlib.sha256(configuration).hexdigest()}.json"


def _layer(path: Path) -> Layer:
    with path.open("rb") as content:
        return Layer(path, hashlib.file_digest(content, "sha256").hexdigest())


def _as_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o755
    return entry


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))
