"""`kbpf demo`: a toy node, kbpf on it with one datapath after the other, real requests, and what came of them.

kbpf runs as the process that an operator would start, from the same manifests a user can read in `examples/`. The demo
takes everything down again: at the end, after an error, on Ctrl-C and on SIGTERM.
"""

import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from types import FrameType

from rich.console import Console

from kbpf.demo.act import Act, Departure
from kbpf.demo.exchange import Answer, Request, spell
from kbpf.demo.proxy import Proxy
from kbpf.demo.scene import Frontend, examples, let_leave
from kbpf.demo.stage import Stage, take_down
from kbpf.demo.table import departure_sentence, result_table
from kbpf.errors import KbpfError

REQUESTS = 300
# Attempts of a stream before a change, and after it.
AROUND = 200
OPTIONS = {
    "ebpf": ("--datapath=ebpf", "--fallback=none"),
    "iptables": ("--datapath=iptables",),
    "auto": ("--datapath=auto",),
}
Tell = Callable[[str], None]


def run(datapaths: Sequence[str], *, keep: bool) -> int:
    """Play the examples with each datapath. The exit status: 0 when every request was answered by whom it should."""
    stage = Stage(examples())
    signal.signal(signal.SIGTERM, _end)
    is_kept = False
    try:
        status = _play(stage, datapaths, keep)
        is_kept = keep
        return status
    finally:
        if not is_kept:
            take_down(stage.tag)


def _play(stage: Stage, datapaths: Sequence[str], keep: bool) -> int:
    acts, problems = [], []
    with _telling() as tell:
        tell("building a node with pods")
        _create(stage)
        direct: dict[Frontend, list[Answer]] = {frontend: [] for frontend in stage.scene.frontends}
        _ask_directly(stage, direct)  # to warm up: the first requests of all meet cold caches
        for datapath in datapaths:
            tell("asking the backends directly")
            for frontend, answers in _ask_directly(stage, direct).items():
                direct[frontend] += answers
            try:
                acts.append(_act(stage, datapath, tell, keep=keep and datapath == datapaths[-1]))
            except KbpfError as error:
                problems.append(f"{datapath}: {error}")
    problems += [problem for act in acts for problem in act.problems()]
    out = Console()
    say = partial(out.print, markup=False, highlight=False, soft_wrap=True)
    if acts:
        out.print(result_table(acts, direct))
    for act in acts:
        say(departure_sentence(act))
    for problem in problems:
        say(f"PROBLEM {problem}", style="bold red")
    if keep:
        stage.servers.outlive()
        say(_guide(stage))
    return 1 if problems else 0


def _create(stage: Stage) -> None:
    try:
        stage.create()
    except OSError as error:
        raise KbpfError(f"cannot build the toy node out of namespaces and cgroups here: {error}") from error


def _act(stage: Stage, datapath: str, tell: Tell, *, keep: bool) -> Act:
    """One datapath's turn; afterwards the kernel holds nothing of it, unless it is kept."""
    proxy = stage.proxy(*OPTIONS[datapath])
    try:
        tell(f"{datapath}: starting kbpf")
        proxy.start()
        proxy.wait_until_healthy()
        answers = {}
        for frontend in stage.scene.frontends:
            tell(f"{datapath}: {REQUESTS} requests to {frontend.service}, {frontend.name}")
            answers[frontend] = stage.client.send(_request(frontend, count=REQUESTS))
        tell(f"{datapath}: a backend leaves under a stream of requests")
        act = Act(datapath, answers, _departure(stage, proxy))
    except KbpfError:
        # What went wrong first is what the user must hear; that the end went wrong too is no wonder.
        with suppress(KbpfError):
            _finish(proxy)
        raise
    if not keep:
        _finish(proxy)
    return act


def _finish(proxy: Proxy) -> None:
    proxy.terminate()
    proxy.cleanup()


def _departure(stage: Stage, proxy: Proxy) -> Departure:
    frontend = _usual_frontend(stage)
    leaving = frontend.backends[-1]
    stream = stage.client.stream(_request(frontend, pause_s=0.001))
    try:
        stream.wait_for(AROUND)
        syncs = len(proxy.syncs())
        let_leave(stage.manifests, frontend.service, leaving[0])
        proxy.wait_for_sync(syncs)
        # The attempt that was under way during the sync may still have gone to it.
        before = stream.wait_for(1)
        after = stream.wait_for(AROUND)
    finally:
        stream.close()
        stage.restore_manifests()
    name = spell(*leaving)
    return Departure(name, after.attempts, after.failed, after.backends.get(name, 0) - before.backends.get(name, 0))


def _usual_frontend(stage: Stage) -> Frontend:
    return next(each for each in stage.scene.frontends if each.protocol == "tcp" and not each.keeps_clients)


def _ask_directly(stage: Stage, frontends: Iterable[Frontend]) -> dict[Frontend, list[Answer]]:
    """As many requests to the backends of each frontend themselves, shared among them."""
    return {
        frontend: [
            answer
            for address, port in frontend.backends
            for answer in stage.client.send(
                Request(address, port, frontend.protocol, count=REQUESTS // len(frontend.backends))
            )
        ]
        for frontend in frontends
    }


def _request(frontend: Frontend, *, count: int = 1, pause_s: float = 0.0) -> Request:
    return Request(frontend.address, frontend.port, frontend.protocol, count=count, pause_s=pause_s)


@contextmanager
def _telling() -> Iterator[Tell]:
    """One line that says what goes on; lines of text where there is no terminal to redraw one."""
    console = Console(stderr=True)
    if console.is_terminal:
        with console.status("") as status:
            yield status.update
    else:
        yield lambda text: console.print(text, markup=False, highlight=False)


def _guide(stage: Stage) -> str:
    """How to look around on a node that was kept."""
    inside = f"nsenter --net={stage.node.namespace.path}"
    frontend = _usual_frontend(stage)
    call = f"exec 3<>/dev/tcp/{frontend.address}/{frontend.port}; echo hello >&3; head -n1 <&3"
    return f"""
The node is kept, with kbpf running on it. Look around:
  {inside} ip address
  {inside} iptables-save
  ls {stage.node.bpffs}
  tail {stage.log}
Ask a Service from the client pod; the answer names the backend and the client:
  bash -c 'echo $$ >{stage.client.place.cgroup}/cgroup.procs; exec nsenter --net={stage.client.place.namespace} \\
    bash -c "{call}"'
Change what kbpf balances, and ask again: edit the files in
  {stage.manifests}
Remove it all:
  kbpf demo --remove
"""


def _end(_signal: int, _frame: FrameType | None) -> None:
    sys.exit(128 + signal.SIGTERM)
