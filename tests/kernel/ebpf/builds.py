"""What the tests load: with every helper that this kernel has."""

from collections.abc import Mapping
from typing import Any

from kbpf.datapath.ebpf import source
from kbpf.datapath.ebpf.pins import Pins
from kbpf.datapath.ebpf.probe import has_coarse_clock, has_set_retval

SMALL = {"slots": 4096, "membership": 4096, "affinity": 1024, "udp_conn": 1024, "connections": 1024, "flows": 1024}


def describe(pins: Pins, sizes: Mapping[str, int], **options: Any) -> source.Build:
    """As `source.describe`; what only later kernels have is used where it is there."""
    there = {"has_set_retval": has_set_retval(), "has_coarse_clock": has_coarse_clock()}
    return source.describe(pins, sizes, **(there | options))
