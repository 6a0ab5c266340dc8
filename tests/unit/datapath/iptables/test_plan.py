"""The order of writes: no service is ever half there, and deletions come last."""

from kbpf.datapath.iptables.plan import Difference, Placed, arrange
from kbpf.datapath.iptables.ruleset import Chain, ChainKey, RestoreInput, Table

FOUNDATION = (Placed(Table.NAT, Chain("KUBE-MARK-MASQ", ("-A KUBE-MARK-MASQ -j MARK --or-mark 0x4000",))),)
DISPATCH = (
    Placed(Table.FILTER, Chain("KUBE-FORWARD")),
    Placed(Table.NAT, Chain("KUBE-SERVICES", ("-A KUBE-SERVICES -j KUBE-SVC-1",))),
)


def bodies(count: int, size: int = 3) -> tuple[tuple[Chain, ...], ...]:
    return tuple(tuple(Chain(f"KUBE-B{number}-{index}") for index in range(size)) for number in range(count))


def chains(restore: RestoreInput) -> list[str]:
    return [chain.name for part in restore.tables for chain in part.chains]


def removed(restore: RestoreInput) -> tuple[str, ...]:
    return tuple(name for part in restore.tables for name in part.removed)


def test_nothing_to_do_is_no_input():
    assert arrange(Difference(), None) == ()
    assert arrange(Difference(), 10) == ()


def test_what_fits_goes_in_one_piece():
    difference = Difference(foundation=FOUNDATION, bodies=bodies(2), dispatch=DISPATCH, stale=("KUBE-SVC-OLD",))
    (only,) = arrange(difference, 7)
    assert [part.table for part in only.tables] == [Table.FILTER, Table.NAT]
    assert len(chains(only)) == 9
    assert removed(only) == ("KUBE-SVC-OLD",)
    assert arrange(difference, None) == (only,)


def test_chains_are_written_from_the_last_name_to_the_first():
    (only,) = arrange(Difference(bodies=bodies(3)), None)
    assert chains(only) == sorted(chains(only), reverse=True)


def test_what_does_not_fit_is_written_from_the_inside_out():
    stale = tuple(f"KUBE-SEP-{number}" for number in range(8))
    edits = {Table.NAT: ("-I OUTPUT 1 -j KUBE-SERVICES",)}
    difference = Difference(
        present=(ChainKey(Table.NAT, "KUBE-PROXY-CANARY"),),
        foundation=FOUNDATION,
        bodies=bodies(5),
        dispatch=DISPATCH,
        edits=edits,
        stale=stale,
    )
    inputs = arrange(difference, 6)
    assert [min(chains(each)) for each in inputs[:4]] == ["KUBE-MARK-MASQ", "KUBE-B0-0", "KUBE-B2-0", "KUBE-B4-0"]
    assert chains(inputs[4]) == ["KUBE-FORWARD", "KUBE-SERVICES", "KUBE-PROXY-CANARY"]
    assert "-I OUTPUT 1 -j KUBE-SERVICES" in inputs[4].text
    assert [removed(each) for each in inputs[5:]] == [stale[:6], stale[6:]]


def test_the_chains_of_a_service_port_are_never_spread_over_two_inputs():
    inputs = arrange(Difference(bodies=(*bodies(1, 4), *bodies(2, 5), *bodies(1, 20))), 8)
    assert [len(chains(each)) for each in inputs] == [4, 5, 5, 20]
