"""The kernel's own ranges of ports, as it prints them."""

from pathlib import Path

import pytest

from kbpf.host.local_ports import gives_out_any

NODE_PORTS = range(30000, 32768)


@pytest.mark.parametrize(
    ("local", "reserved", "overlap"),
    [
        ("32768\t60999\n", "\n", False),
        ("32767\t60999\n", "\n", True),
        ("1024\t65000\n", "8080,30000-32767\n", False),
        ("1024\t65000\n", "8080,30000-32766\n", True),
        ("20000\t29999\n", "\n", False),
    ],
)
def test_ports_that_a_socket_may_get_without_asking(tmp_path: Path, local: str, reserved: str, overlap: bool):
    (tmp_path / "ip_local_port_range").write_text(local)
    (tmp_path / "ip_local_reserved_ports").write_text(reserved)
    assert gives_out_any(NODE_PORTS, tmp_path) is overlap


def test_a_kernel_that_does_not_say_gives_out_none(tmp_path: Path):
    assert not gives_out_any(NODE_PORTS, tmp_path)
