"""What programs are built from: one text, definitions, and a hash that changes exactly when the programs would."""

from pathlib import Path

import pytest

from kbpf.datapath.ebpf.pins import Pins
from kbpf.datapath.ebpf.source import Build, amalgamated, bpf_folder, describe
from kbpf.errors import UsageError

ROOT = Path("/sys/fs/bpf/kbpf")


def build(root: Path = ROOT, *, has_set_retval: bool = True, folder: Path | None = None, **sizes: int) -> Build:
    return describe(Pins(root), sizes, has_set_retval=has_set_retval, folder=folder)


def test_headers_are_put_in_once_with_the_lines_of_their_files(tmp_path: Path) -> None:
    (tmp_path / "a.h").write_text("int a;\n")
    (tmp_path / "b.h").write_text('#include "a.h"\nint b;\n')
    (tmp_path / "main.c").write_text('#include "a.h"\n#include "b.h"\n#include <linux/types.h>\nint c;\n')
    assert amalgamated(tmp_path / "main.c").splitlines() == [
        '#line 1 "main.c"',
        '#line 1 "a.h"',
        "int a;",
        '#line 2 "main.c"',
        '#line 1 "b.h"',
        '#line 2 "b.h"',
        "int b;",
        '#line 3 "main.c"',
        "#include <linux/types.h>",
        "int c;",
    ]


def test_definitions_carry_the_path_of_the_maps_and_every_size() -> None:
    flags = build(slots=99).flags
    assert '-DMAPS_PATH="/sys/fs/bpf/kbpf/v5/maps"' in flags
    assert "-DSLOTS_ENTRIES=99" in flags
    assert "-DFRONTENDS_ENTRIES=65536" in flags
    assert "-DHAVE_SET_RETVAL=1" in flags
    assert "-DHAVE_COARSE_CLOCK=0" in flags


def test_equal_builds_have_one_hash_and_different_ones_have_others(tmp_path: Path) -> None:
    assert build().hash == build().hash
    changed = tmp_path / "bpf"
    changed.mkdir()
    for path in bpf_folder().glob("*.[ch]"):
        (changed / path.name).write_text(path.read_text() + "/* a word more */\n")
    others = [
        build(slots=99),
        build(has_set_retval=False),
        build(Path("/sys/fs/bpf/other")),
        build(folder=changed),
    ]
    assert len({build().hash, *(other.hash for other in others)}) == 5


@pytest.mark.parametrize(
    "root", ['/sys/fs/bpf/a"b', "/sys/fs/bpf/a b", "/sys/fs/bpf/a:b", "/sys/fs/bpf/a\nb", "/sys/é"]
)
def test_a_root_that_cannot_stand_in_c_is_refused(root: str) -> None:
    with pytest.raises(UsageError, match="--bpffs-root"):
        build(Path(root))
