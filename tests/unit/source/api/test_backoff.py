"""Waiting between two tries."""

from random import Random

from kbpf.source.api.backoff import FIRST_S, LONGEST_S, delay_s


def test_it_doubles_up_to_a_bound_with_at_most_half_of_it_left_to_chance():
    for failures in range(1, 40):
        longest = min(LONGEST_S, FIRST_S * 2.0 ** (failures - 1))
        delays = [delay_s(failures, Random(seed)) for seed in range(50)]
        assert longest / 2 <= min(delays) < max(delays) <= longest


def test_nodes_that_lost_the_server_together_do_not_come_back_together():
    assert len({delay_s(3, Random(seed), retry_after_s=10) for seed in range(100)}) == 100


def test_an_endless_outage_does_not_overflow():
    assert delay_s(10**9, Random(1)) <= LONGEST_S
