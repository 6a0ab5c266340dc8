"""The programs in user space, under address and undefined-behaviour sanitizers, against packets and calls by chance.

`fuzz.c` says what must hold of each packet, `sockets.c` what of each call of a socket. KBPF_FUZZ_S makes a run longer
(ten seconds in all otherwise), and KBPF_FUZZ_SEED begins with other packets.
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
CALLS_MUST_HAPPEN = frozenset(
    {
        Reason.OTHER_PROTOCOL,
        Reason.NOT_A_FRONTEND,
        Reason.DEFERRED,
        Reason.REJECTED,
        Reason.REJECT_PASSED,
        Reason.DROP_PASSED,
        Reason.NO_STORAGE,
        Reason.CHOSEN,
        Reason.AFFINITY,
        Reason.REMEMBERED,
        Reason.REVERSED,
        Reason.NOT_REVERSED,
        Reason.PORT_HELD,
    }
)
FEW_CONNECTIONS = {"connections": 5}
"""Fewer than there are sockets, so that slots are fought for."""


def built(folder: Path, name: str, build: source.Build) -> Path:
    made = folder / name
    options = ["-std=gnu11", "-O1", "-g", *SANITIZED, *WARNINGS, f"-I{source.bpf_folder()}", *build.flags]
    done = subprocess.run(["gcc", *options, str(HERE / f"{name}.c"), "-o", str(made)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return made


@pytest.fixture(scope="module")
def fuzz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    programs = (*PACKET_PROGRAMS, *OTHER_PACKET_PROGRAMS)
    build = source.describe(Pins(Path("/none")), {}, has_set_retval=True, packet_programs=programs)
    return built(tmp_path_factory.mktemp("fuzz"), "fuzz", build)


@pytest.fixture(scope="module")
def sockets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    build = source.describe(Pins(Path("/none")), FEW_CONNECTIONS, has_set_retval=True, holds_node_ports=True)
    return built(tmp_path_factory.mktemp("sockets"), "sockets", build)


def reasons_of(program: Path, seed: int) -> frozenset[Reason]:
    """Those that came about; fails when something did not hold."""
    done = subprocess.run([program, str(seed), str(SECONDS // 2)], capture_output=True, text=True)
    assert done.returncode == 0, f"seed {seed}: {done.stderr}"
    _, *lines = done.stdout.splitlines()
    counts = {Reason(int(reason)): int(count) for reason, count in map(str.split, lines)}
    return frozenset(reason for reason, count in counts.items() if count)


@pytest.mark.parametrize("seed", [SEED, SEED + 1])
def test_no_packet_breaks_what_must_hold(fuzz: Path, seed: int) -> None:
    assert reasons_of(fuzz, seed) >= MUST_HAPPEN


@pytest.mark.parametrize("seed", [SEED, SEED + 1])
def test_no_call_of_a_socket_breaks_what_must_hold(sockets: Path, seed: int) -> None:
    assert reasons_of(sockets, seed) >= CALLS_MUST_HAPPEN
