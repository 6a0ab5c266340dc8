"""How long to wait before the next try. Pure; the source of randomness is an argument.

All nodes of a cluster lose an API server in the same moment: the jitter keeps them from coming back in the same one.
"""

from random import Random

FIRST_S = 0.25
LONGEST_S = 30.0


def delay_s(failures: int, random: Random, retry_after_s: float = 0.0) -> float:
    """After so many failures in a row. Never sooner than the server asked for."""
    longest = min(LONGEST_S, FIRST_S * 2.0 ** min(failures - 1, 16))
    return max(longest * random.uniform(0.5, 1.0), retry_after_s * random.uniform(1.0, 1.25))
