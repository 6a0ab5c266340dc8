"""What a daemon does not import before it has to: with iptables, imports were more than half of a start's CPU time."""

import subprocess
import sys

HEAVY = {
    "kbpf.datapath.ebpf.backend": "eBPF, where iptables was asked for",
    "kbpf.source.manifests": "manifests, where there is an API server",
    "kubernetes": "the client, where the kubeconfig is a plain one",
    "rich": "tables, which only subcommands print",
    "watchfiles": "inotify, for manifests alone",
}
IMPORTS = (
    "import sys, kbpf.cli.main, kbpf.source.api.source, kbpf.source.api.http, kbpf.event_writer; print(*sys.modules)"
)


def test_what_iptables_and_an_api_server_do_not_need_is_not_imported():
    done = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True, check=True)
    assert HEAVY.keys() & set(done.stdout.split()) == set()
