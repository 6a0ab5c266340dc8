from io import StringIO

from rich.console import Console

from kbpf.demo.act import Act, Departure
from kbpf.demo.exchange import Answer
from kbpf.demo.scene import Frontend
from kbpf.demo.table import result_table

WEB = Frontend("web", "fd96::10", 80, "tcp", (("fd42:1::10", 8080), ("fd42:1::11", 8080)), keeps_clients=False)
ONE, TWO = WEB.backend_names


def test_the_table_shows_shares_and_latency_of_each_datapath_beside_the_direct_connection():
    answers = [Answer(ONE, latency_us=90.0)] * 3 + [Answer(TWO, latency_us=90.0)]
    acts = [Act(name, {WEB: answers}, Departure(TWO, 1, 0, 0)) for name in ("ebpf", "iptables")]
    out = StringIO()
    Console(file=out, width=80).print(result_table(acts, {WEB: [Answer(ONE, latency_us=60.0)]}))
    lines = [line.split() for line in out.getvalue().splitlines() if line.strip()]
    assert lines[1] == ["Service", "Backend", "ebpf", "iptables", "direct"]
    assert lines[3:] == [
        ["web", ONE, "3", "75%", "3", "75%"],
        ["[fd96::10]:80/tcp", TWO, "1", "25%", "1", "25%"],
        ["median", "latency", "90", "µs", "1.50×", "90", "µs", "1.50×", "60", "µs"],
    ]
