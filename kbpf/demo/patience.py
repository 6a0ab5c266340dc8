"""How long the demo and the tests wait for what other processes do, before they call it a failure.

KBPF_TIMEOUT_SCALE makes every such limit so many times longer, for machines that are slow: `make test-vm` sets it in
its virtual machines. kbpf's own limits do not follow it.
"""

import os
from functools import cache

from kbpf.errors import UsageError

VARIABLE = "KBPF_TIMEOUT_SCALE"


def patient(seconds: float) -> float:
    return seconds * _scale()


@cache
def _scale() -> float:
    text = os.environ.get(VARIABLE) or "1"
    try:
        scale = float(text)
    except ValueError:
        scale = 0.0
    if not 1 <= scale <= 1000:
        raise UsageError(f"{VARIABLE}={text}: must be a number from 1 to 1000")
    return scale
