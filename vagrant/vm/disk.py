"""Disks of a machine: file systems made from a folder, without mounting, and raw ones that hold a tar archive."""

from pathlib import Path

from vagrant.vm.commands import run

_SPARE_BYTES = 64 << 20
_BLOCK = 4096


def make(content: Path, target: Path, spare_bytes: int = _SPARE_BYTES) -> None:
    """An ext4 file system with the content of a folder, and `spare_bytes` more."""
    used = int(run("du", "--summarize", "--block-size=1", content).split()[0])
    # Inodes and tables of a file system take about a twentieth.
    size = (used + used // 10 + spare_bytes) // _BLOCK * _BLOCK
    target.unlink(missing_ok=True)
    make_empty(target, size)
    run("mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-d", content, target)


def make_empty(target: Path, size: int) -> None:
    with target.open("wb") as file:
        file.truncate(size)
