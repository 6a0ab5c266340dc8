"""Archives of images: what containerd reads from them."""

import hashlib
import json
import tarfile
from pathlib import Path
from typing import Any

from tests.e2e.archive import Image, Settings, layer_of_files, layer_of_program, layer_of_tree, write_archive


def read(archive: tarfile.TarFile, name: str) -> bytes:
    content = archive.extractfile(name)
    assert content
    return content.read()


def configurations(archive: tarfile.TarFile) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Entry of the manifest and configuration of each image; the name of the latter must be its digest."""
    found = []
    for entry in json.loads(read(archive, "manifest.json")):
        text = read(archive, entry["Config"])
        assert entry["Config"] == f"{hashlib.sha256(text).hexdigest()}.json"
        found.append((entry, json.loads(text)))
    return found


def test_an_image_is_started_as_its_settings_say(tmp_path: Path) -> None:
    layer = layer_of_files(tmp_path / "one.layer", {"etc/motd": "hello"})
    settings = Settings(("/bin/kbpf",), ("--help",), "1000", ("A=b",), {"title": "kbpf"})
    write_archive(tmp_path / "one.tar", [Image(("kbpf:1", "kbpf:latest"), settings, (layer,))])
    with tarfile.open(tmp_path / "one.tar") as archive:
        ((entry, configuration),) = configurations(archive)
    assert entry["RepoTags"] == ["kbpf:1", "kbpf:latest"]
    assert configuration["os"] == "linux"
    assert configuration["config"] == {
        "Entrypoint": ["/bin/kbpf"],
        "Cmd": ["--help"],
        "User": "1000",
        "Env": ["A=b"],
        "Labels": {"title": "kbpf"},
    }


def test_images_share_a_layer_that_the_archive_holds_once(tmp_path: Path) -> None:
    below = layer_of_files(tmp_path / "below.layer", {"etc/motd": "old"})
    above = layer_of_files(tmp_path / "above.layer", {"etc/motd": "new"})
    images = [Image(("kbpf:1",), Settings(), (below,)), Image(("kbpf:2",), Settings(), (below, above))]
    write_archive(tmp_path / "two.tar", images)
    with tarfile.open(tmp_path / "two.tar") as archive:
        layers = [name for name in archive.getnames() if name.endswith("layer.tar")]
        (old, old_configuration), (new, new_configuration) = configurations(archive)
        digests = {name: f"sha256:{hashlib.sha256(read(archive, name)).hexdigest()}" for name in layers}
    assert len(layers) == 2
    assert old["Layers"] == new["Layers"][:1]
    assert old_configuration["rootfs"]["diff_ids"] == [digests[name] for name in old["Layers"]]
    assert new_configuration["rootfs"]["diff_ids"] == [digests[name] for name in new["Layers"]]


def test_a_tree_comes_without_what_every_container_gets_anew(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for name in ("proc/1", "etc", "var/cache/apt/archives"):
        (root / name).mkdir(parents=True)
    (root / "etc/motd").write_text("hello")
    with tarfile.open(layer_of_tree(tmp_path / "tree.layer", root).path) as layer:
        names = set(layer.getnames())
    assert {"./proc", "./etc/motd", "./var/cache/apt"} <= names
    assert not {"./proc/1", "./var/cache/apt/archives"} & names


def test_a_program_belongs_to_root_and_may_be_executed(tmp_path: Path) -> None:
    program = tmp_path / "pause"
    program.write_text("")
    program.chmod(0o600)
    with tarfile.open(layer_of_program(tmp_path / "pause.layer", program).path) as layer:
        (entry,) = layer.getmembers()
    assert (entry.name, entry.uid, entry.mode) == ("pause", 0, 0o755)
