"""The parent's side of the loader: which interpreter, and one line out of a compiler's many."""

import sys
from pathlib import Path

import pytest

from kbpf.datapath.ebpf import loader
from kbpf.datapath.ebpf.child import Reply, ask
from kbpf.errors import LoadFailed

FAKE_BCC = 'class BPF: pass\n__version__ = "0.99.0"\n'


def python_with(tmp_path: Path, name: str, bcc: str | None) -> str:
    """An interpreter whose only bcc is the given one. It drops -I, which would hide PYTHONPATH."""
    packages = tmp_path / f"{name}-packages"
    packages.mkdir()
    if bcc is not None:
        (packages / "bcc.py").write_text(bcc)
    script = tmp_path / name
    script.write_text(f'#!/bin/sh\nshift\nPYTHONPATH={packages} exec {sys.base_prefix}/bin/python3 -S "$@"\n')
    script.chmod(0o755)
    return str(script)


def test_the_first_interpreter_with_bcc_is_taken(tmp_path: Path) -> None:
    without, with_bcc = python_with(tmp_path, "without", None), python_with(tmp_path, "with", FAKE_BCC)
    assert loader.find_bcc((without, with_bcc)) == loader.Bcc(with_bcc, "0.99.0")


def test_the_unrelated_bcc_of_pypi_is_recognised(tmp_path: Path) -> None:
    unrelated = python_with(tmp_path, "unrelated", "class Lattice: pass\n")
    with pytest.raises(LoadFailed, match="is the unrelated package of that name from PyPI"):
        loader.find_bcc((unrelated,))


def test_without_bcc_every_interpreter_says_what_it_lacks(tmp_path: Path) -> None:
    without = python_with(tmp_path, "without", None)
    with pytest.raises(LoadFailed) as failure:
        loader.find_bcc((without, "/nonexistent/python"))
    assert str(failure.value) == (
        f"no Python with BCC (Debian: python3-bpfcc): {without}: No module named 'bcc'; "
        "/nonexistent/python: not installed"
    )


def test_a_library_that_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    broken = python_with(tmp_path, "broken", 'raise OSError("libbcc.so.0: cannot open shared object file")\n')
    with pytest.raises(LoadFailed, match=r"bcc cannot load its library: libbcc\.so\.0"):
        loader.find_bcc((broken,))


def test_a_child_that_hangs_is_stopped(tmp_path: Path) -> None:
    script = tmp_path / "hangs.py"
    script.write_text("import time; time.sleep(60)")
    with pytest.raises(LoadFailed, match=r"no answer within 0\.2 s"):
        ask(sys.executable, script, {}, 0.2)


def test_a_child_that_dies_is_quoted(tmp_path: Path) -> None:
    script = tmp_path / "dies.py"
    script.write_text("raise SystemExit('the last words')")
    with pytest.raises(LoadFailed, match=r"dies\.py under .*: exit status 1: the last words"):
        ask(sys.executable, script, {}, 20)


def test_the_first_compile_error_is_the_essence() -> None:
    stderr = "In file included\nlb.h:7:1: error: unknown type name 'x'\nlb.h:9:1: error: another\n"
    reply = Reply({"error": "Failed to compile BPF module"}, stderr)
    assert loader.essence(reply) == "Failed to compile BPF module: lb.h:7:1: error: unknown type name 'x'"


def test_the_verifiers_last_word_is_the_essence() -> None:
    stderr = "0: (b7) r0 = 1\nR5 !read_ok\nprocessed 68 insns (limit 1000000)\n\nHINT: try this\n"
    reply = Reply({"error": "Failed to load BPF program b'sendmsg6': Permission denied"}, stderr)
    assert loader.essence(reply) == "Failed to load BPF program b'sendmsg6': Permission denied: R5 !read_ok"


def test_an_error_without_words_stands_alone() -> None:
    assert loader.essence(Reply({"error": "cannot pin connect4"}, "")) == "cannot pin connect4"
