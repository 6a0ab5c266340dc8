"""The demo's result for people: a table of who answered how often and how fast, and a sentence for each departure."""

from collections.abc import Mapping, Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from kbpf.demo.act import Act, latency_us
from kbpf.demo.exchange import Answer
from kbpf.demo.scene import Frontend


def result_table(acts: Sequence[Act], direct: Mapping[Frontend, Sequence[Answer]]) -> Table:
    """One section for each frontend; `direct` holds requests to its backends without a Service between."""
    table = Table(title="Requests from one client pod, and who answered", box=box.SIMPLE)
    table.add_column("Service")
    table.add_column("Backend")
    for act in acts:
        table.add_column(act.datapath, justify="right")
    table.add_column("direct", justify="right")
    for frontend in acts[0].answers:
        for row in _section(frontend, acts, direct[frontend]):
            table.add_row(*map(Text, row))  # plain: brackets around an IPv6 address are no markup
        table.add_section()
    return table


def departure_sentence(act: Act) -> str:
    departure = act.departure
    return (
        f"{act.datapath}: {departure.backend} left under a stream of {departure.attempts} new connections: "
        f"{departure.failed} failed, {departure.late} reached it afterwards"
    )


def _section(frontend: Frontend, acts: Sequence[Act], direct: Sequence[Answer]) -> list[list[str]]:
    labels = [frontend.service, frontend.name, "session affinity" if frontend.keeps_clients else ""]
    names = _met(acts, frontend) if frontend.keeps_clients else frontend.backend_names
    rows = [[name, *(_share(act, frontend, name) for act in acts), ""] for name in names]
    baseline = latency_us(direct)
    rows.append(["median latency", *(_latency(act.answers[frontend], baseline) for act in acts), f"{baseline:.0f} µs"])
    rows += [[""] * len(rows[0])] * (len(labels) - len(rows))
    return [[labels[place] if place < len(labels) else "", *row] for place, row in enumerate(rows)]


def _met(acts: Sequence[Act], frontend: Frontend) -> list[str]:
    """With session affinity the one client meets one backend with each datapath; the others are not for it."""
    return [name for name in frontend.backend_names if any(act.shares(frontend)[name] for act in acts)]


def _share(act: Act, frontend: Frontend, backend: str) -> str:
    shares = act.shares(frontend)
    if frontend.keeps_clients and not shares[backend]:
        return "–"
    return f"{shares[backend]} {shares[backend] / max(1, shares.total()):4.0%}"


def _latency(answers: Sequence[Answer], baseline: float) -> str:
    return f"{latency_us(answers):.0f} µs {latency_us(answers) / baseline:.2f}×"
