"""The packet programs in user space, under address and undefined-behaviour sanitizers, against packets by chance.

`fuzz.c` says what must hold of each packet. KBPF_FUZZ_S makes a run longer (ten seconds in all otherwise), and
KBPF_FUZZ_SEED begins with other packets.
"""

import os
import subprocess
from pathlib import Path

import pytest

from kbpf.datapath.ebpf import source
from kbpf.datapath.ebpf.hooks import OTHER_PACKET_PROGRAMS, PACKET_PROGRAMS
from kbpf.datapath.ebpf.pins import Pins
from kbpf.datapath.ebpf.shapes import Reason

HERE = Path(__file__).parent
SEED, SECONDS = int(os.environ.get("KBPF_FUZZ_SEED", "1")), int(os.environ.get("KBPF_FUZZ_S", "10"))
SANITIZED = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-strict-aliasing")
# The programs hold functions that a part of them does not use, and clang's pragmas.
WARNINGS = ("-Wall", "-Werror", "-Wno-unused-function", "-Wno-unknown-pragmas")
MUST_HAPPEN = frozenset(
    {
        Reason.NOT_A_FRONTEND,
        Reason.DEFERRED,
        Reason.REJECTED,
        Reason.CHOSEN,
        Reason.AFFINITY,
        Reason.REMEMBERED,
        Reason.REVERSED,
        Reason.NOT_REVERSED,
        Reason.DROPPED,
        Reason.SOURCE_RANGE,
        Reason.NO_FLOW,
        Reason.NO_MASQUERADE,
        Reason.ERROR_TRANSLATED,
        Reason.OVERTOOK,
    }
)


@pytest.fixture(scope="module")
def fuzz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    programs = (*PACKET_PROGRAMS, *OTHER_PACKET_PROGRAMS)
    build = source.describe(Pins(Path("/none")), {}, has_set_retval=True, packet_programs=programs)
    made = tmp_path_factory.mktemp("fuzz") / "fuzz"
    options = ["-std=gnu11", "-O1", "-g", *SANITIZED, *WARNINGS, f"-I{source.bpf_folder()}", *build.flags]
    done = subprocess.run(["gcc", *options, str(HERE / "fuzz.c"), "-o", str(made)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return made


@pytest.mark.parametrize("seed", [SEED, SEED + 1])
def test_no_packet_breaks_what_must_hold(fuzz: Path, seed: int) -> None:
    done = subprocess.run([fuzz, str(seed), str(SECONDS // 2)], capture_output=True, text=True)
    assert done.returncode == 0, f"seed {seed}: {done.stderr}"
    _, *lines = done.stdout.splitlines()
    counts = {Reason(int(reason)): int(count) for reason, count in map(str.split, lines)}
    assert {reason for reason in MUST_HAPPEN if not counts[reason]} == set()
