"""Where everything lies below the bpffs root, so that the data path lives without a process.

    ROOT/v1/maps/NAME                 maps; programs of every build of one layout share them
    ROOT/v1/outgrown/NAME             maps that larger ones replace, until programs that use these are in force
    ROOT/v1/programs/HASH/NAME        programs, by the hash of what they were built from
    ROOT/v1/links/NAME                attachments; a link is the hook being in force

`loader` fills maps and programs, `links` the links. Names have no dots:
bpffs refuses them.
"""

import shutil
from collections.abc import Iterator, Set
from pathlib import Path

import msgspec

from kbpf.datapath.ebpf.layout import LAYOUT_VERSION


class Pins(msgspec.Struct, frozen=True):
    """The pins of this version's layout below `root`."""

    root: Path

    @property
    def folder(self) -> Path:
        return self.root / f"v{LAYOUT_VERSION}"

    @property
    def maps(self) -> Path:
        return self.folder / "maps"

    @property
    def outgrown_maps(self) -> Path:
        return self.folder / "outgrown"

    @property
    def programs(self) -> Path:
        return self.folder / "programs"

    @property
    def links(self) -> Path:
        return self.folder / "links"

    def map(self, name: str) -> Path:
        return self.maps / name

    def outgrown(self, name: str) -> Path:
        return self.outgrown_maps / name

    def program_folder(self, source_hash: str) -> Path:
        return self.programs / source_hash

    def link(self, name: str) -> Path:
        return self.links / name

    def holds(self, maps: Set[str], links: Set[str]) -> bool:
        """Are these pins there? Two readings of a folder, which any sync can afford."""
        return maps <= _names(self.maps) and links <= _names(self.links)

    def make_folders(self) -> None:
        for folder in (self.maps, self.outgrown_maps, self.programs, self.links):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def other_versions(self) -> Iterator[Path]:
        """Folders that kbpf of another layout left below the same root."""
        return (path for path in sorted(self.root.glob("v[0-9]*")) if path != self.folder)

    def remove_programs_except(self, source_hash: str) -> None:
        """Unfinished folders and other builds. A link holds its program, so nothing stops working."""
        for path in self.programs.iterdir():
            if path.name != source_hash:
                shutil.rmtree(path)


def _names(folder: Path) -> Set[str]:
    try:
        return frozenset(pin.name for pin in folder.iterdir())
    except FileNotFoundError:
        return frozenset()


def remove(folder: Path) -> None:
    """Unpin everything below `folder` and remove it. Nothing there is no error."""
    if folder.exists():
        shutil.rmtree(folder)
