import http.client
import threading
from pathlib import Path

from kbpf.datapath.interface import SyncReport
from kbpf.demo.node import Network, Node
from kbpf.demo.proxy import Proxy


def proxy_with_log(directory: Path, log: str) -> Proxy:
    path = directory / "kbpf.log"
    path.write_text(log)
    return Proxy(Node(Network("unused")), directory, path)


def test_the_writes_of_each_sync_are_read_from_the_sentences_in_the_log(tmp_path):
    sentences = [
        SyncReport("ebpf", full=True, services=3, writes=17, duration_s=0.01).sentence,
        SyncReport("ebpf", full=False, services=1, writes=0, duration_s=0.001, deferred={"sctp": 2}).sentence,
    ]
    log = "\n".join(["starting", *(f"12:00:00 info {sentence}" for sentence in sentences), "stopped"])
    assert proxy_with_log(tmp_path, log).syncs() == [17, 0]


def test_the_last_line_of_the_log_explains_a_failure(tmp_path):
    assert proxy_with_log(tmp_path, "first\nkbpf: no such file\n").last_words() == "kbpf: no such file"
    assert proxy_with_log(tmp_path, "").last_words() == "no log"


def test_healthy_means_that_the_sync_is_in_the_log_too(tmp_path, monkeypatch):
    proxy = proxy_with_log(tmp_path, "")
    monkeypatch.setattr(proxy, "health", lambda: http.client.OK)
    sentence = SyncReport("ebpf", full=True, services=3, writes=0, duration_s=0.01).sentence
    late = threading.Timer(0.05, proxy.log.write_text, (f"{sentence}\n",))
    late.start()
    proxy.wait_until_healthy()
    late.join()
    assert proxy.syncs() == [0]
