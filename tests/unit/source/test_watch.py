"""The source end to end: real files, real inotify; every wait is for an event, with a deadline."""

import os
import queue
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kbpf.model.events import Event, Kind, ServiceChanged, Synced
from kbpf.source.watch import LOOK_EVERY_S, ManifestSource, watched_directories
from tests.logs import capture_logs

DEADLINE_S = 20.0


def service(name: str = "web", address: str = "10.96.0.10") -> str:
    return f"---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{clusterIP: {address}}}\n"


class Deliveries:
    """What the source said, event by event."""

    def __init__(self) -> None:
        self.events: queue.Queue[Event] = queue.Queue()

    def next(self) -> Event:
        return self.events.get(timeout=DEADLINE_S)

    def next_words(self) -> str:
        event = self.next()
        if isinstance(event, Synced):
            return f"synced {event.kind.value}"
        assert isinstance(event, ServiceChanged)
        return f"{event.name.name} {event.service.spec.cluster_ip if event.service else '-'}"

    def expect_synced(self) -> None:
        assert [self.next() for _ in Kind] == [Synced(kind) for kind in Kind]


@pytest.fixture
def start() -> Iterator[Callable[..., Deliveries]]:
    sources: list[ManifestSource] = []

    def start_source(*paths: Path) -> Deliveries:
        source = ManifestSource([str(path) for path in paths], "n1")
        sources.append(source)
        deliveries = Deliveries()
        source.start(deliveries.events.put)
        return deliveries

    yield start_source
    for source in sources:
        source.stop()


Start = Callable[..., Deliveries]


def test_everything_there_is_comes_first_and_then_synced(tmp_path: Path, start: Start):
    (tmp_path / "a.yaml").write_text(service("a") + service("b"))
    deliveries = start(tmp_path)
    assert [deliveries.next_words() for _ in range(2)] == ["a 10.96.0.10", "b 10.96.0.10"]
    deliveries.expect_synced()


def test_an_empty_directory_is_synced_at_once(tmp_path: Path, start: Start):
    start(tmp_path).expect_synced()


def test_new_changed_and_removed_files_are_noticed(tmp_path: Path, start: Start):
    deliveries = start(tmp_path)
    deliveries.expect_synced()
    (tmp_path / "a.yaml").write_text(service("a"))
    assert deliveries.next_words() == "a 10.96.0.10"
    (tmp_path / "a.yaml").write_text(service("a", "10.96.0.99"))
    assert deliveries.next_words() == "a 10.96.0.99"
    (tmp_path / "a.yaml").unlink()
    assert deliveries.next_words() == "a -"


def test_inotify_is_faster_than_looking_again(tmp_path: Path, start: Start):
    deliveries = start(tmp_path)
    deliveries.expect_synced()
    delays = []
    for number in range(1, 6):
        started = time.monotonic()
        (tmp_path / "a.yaml").write_text(service("a", f"10.96.0.{number}"))
        assert deliveries.next_words() == f"a 10.96.0.{number}"
        delays.append(time.monotonic() - started)
    assert min(delays) < LOOK_EVERY_S / 2


def test_an_editor_that_renames_is_noticed(tmp_path: Path, start: Start):
    path = tmp_path / "a.yaml"
    path.write_text(service("a"))
    deliveries = start(path)
    assert deliveries.next_words() == "a 10.96.0.10"
    deliveries.expect_synced()
    for number in (11, 12):
        new = tmp_path / "a.yaml.new"
        new.write_text(service("a", f"10.96.0.{number}"))
        new.rename(path)
        assert deliveries.next_words() == f"a 10.96.0.{number}"


def test_an_editor_that_moves_the_old_file_away_first_is_noticed(tmp_path: Path, start: Start):
    path = tmp_path / "a.yaml"
    path.write_text(service("a"))
    deliveries = start(path)
    assert deliveries.next_words() == "a 10.96.0.10"
    deliveries.expect_synced()
    path.rename(tmp_path / "a.yaml~")
    path.write_text(service("a", "10.96.0.11"))
    words = deliveries.next_words()
    assert words in ("a 10.96.0.11", "a -")  # the second when the machine was too slow for one look
    if words == "a -":
        assert deliveries.next_words() == "a 10.96.0.11"


@pytest.mark.parametrize("by_file", [False, True], ids=["directory", "file"])
def test_a_swap_of_a_mounted_config_map_is_noticed(tmp_path: Path, start: Start, by_file: bool):
    for version in ("..1", "..2", "..3"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "a.yaml").write_text(service("a", f"10.96.0.{version[2:]}"))
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "a.yaml").symlink_to("..data/a.yaml")
    deliveries = start(tmp_path / "a.yaml" if by_file else tmp_path)
    assert deliveries.next_words() == "a 10.96.0.1"
    deliveries.expect_synced()
    for version in ("2", "3"):
        (tmp_path / "..data_tmp").symlink_to(f"..{version}")
        (tmp_path / "..data_tmp").rename(tmp_path / "..data")
        shutil.rmtree(tmp_path / f"..{int(version) - 1}")
        assert deliveries.next_words() == f"a 10.96.0.{version}"


def test_a_link_to_a_file_elsewhere_is_watched_there(tmp_path: Path, start: Start):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a.yaml").write_text(service("a"))
    (tmp_path / "a.yaml").symlink_to("elsewhere/a.yaml")
    deliveries = start(tmp_path / "a.yaml")
    assert deliveries.next_words() == "a 10.96.0.10"
    deliveries.expect_synced()
    (tmp_path / "elsewhere" / "a.yaml").write_text(service("a", "10.96.0.11"))
    assert deliveries.next_words() == "a 10.96.0.11"


def test_nothing_is_synced_before_every_path_exists(tmp_path: Path, start: Start):
    (tmp_path / "a.yaml").write_text(service("a"))
    later = tmp_path / "later" / "deeper"
    deliveries = start(tmp_path / "a.yaml", later)
    assert deliveries.next_words() == "a 10.96.0.10"
    later.mkdir(parents=True)
    (later / "b.yaml").write_text(service("b"))
    words = [deliveries.next_words() for _ in range(1 + len(Kind))]
    assert "b 10.96.0.10" in words
    assert [f"synced {kind.value}" for kind in Kind] == [word for word in words if word.startswith("synced")]


def test_a_directory_that_is_replaced_is_watched_again(tmp_path: Path, start: Start):
    directory = tmp_path / "manifests"
    directory.mkdir()
    (directory / "a.yaml").write_text(service("a"))
    deliveries = start(directory)
    assert deliveries.next_words() == "a 10.96.0.10"
    deliveries.expect_synced()
    shutil.rmtree(directory)
    assert deliveries.next_words() == "a -"
    directory.mkdir()
    (directory / "a.yaml").write_text(service("a"))
    assert deliveries.next_words() == "a 10.96.0.10"
    (directory / "a.yaml").write_text(service("a", "10.96.0.11"))
    assert deliveries.next_words() == "a 10.96.0.11"


def test_a_slow_writer_takes_nothing_away(tmp_path: Path, start: Start):
    path = tmp_path / "a.yaml"
    path.write_text(service("a") + service("b"))
    deliveries = start(tmp_path)
    assert [deliveries.next_words() for _ in range(2)] == ["a 10.96.0.10", "b 10.96.0.10"]
    deliveries.expect_synced()
    with path.open("w") as writer:
        writer.flush()
        (tmp_path / "z.yaml").write_text(service("z"))  # proof that the emptied file has been looked at
        assert deliveries.next_words() == "z 10.96.0.10"
        writer.write(service("a") + service("b", "10.96.0.99"))
    assert deliveries.next_words() == "b 10.96.0.99"


def test_problems_are_logged_in_one_line_each(tmp_path: Path, start: Start):
    (tmp_path / "a.yaml").write_text("kind: [\n" + service("a") + "---\nkind: Pod\napiVersion: v1\n")
    with capture_logs() as logs:
        deliveries = start(tmp_path)
        assert deliveries.next_words() == "a 10.96.0.10"
        deliveries.expect_synced()
    assert logs == [
        {"log_level": "warning", "event": f"{tmp_path}/a.yaml:2: did not find expected node content"},
        {"log_level": "info", "event": f"{tmp_path}/a.yaml:8: Pod of v1 is not used, skipped"},
    ]


def test_without_inotify_the_source_looks_every_second(tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("kbpf.source.watch.RustNotify", refuse)
    with capture_logs() as logs:
        deliveries = start(tmp_path)
        deliveries.expect_synced()
        (tmp_path / "a.yaml").write_text(service("a"))
        assert deliveries.next_words() == "a 10.96.0.10"
    assert [entry["log_level"] for entry in logs] == ["warning"]


def test_stopping_ends_the_thread_and_is_safe_to_repeat(tmp_path: Path):
    source = ManifestSource([str(tmp_path)], "n1")
    source.stop()
    source = ManifestSource([str(tmp_path)], "n1")
    deliveries = Deliveries()
    source.start(deliveries.events.put)
    deliveries.expect_synced()
    source.stop()
    source.stop()
    assert "manifests" not in {thread.name for thread in threading.enumerate()}


def test_directories_are_watched_beside_and_behind_a_file(tmp_path: Path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a").touch()
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "a").symlink_to("../real/a")
    paths = [str(tmp_path / "links" / "a"), "-", str(tmp_path / "no" / "where"), "a\0"]
    watched = {directory.path for directory in watched_directories(paths)} - {os.getcwd()}  # noqa: PTH109
    assert watched == {str(tmp_path / "real"), str(tmp_path / "links")}


def test_links_that_lead_in_a_circle_are_watched_from_outside(tmp_path: Path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert {directory.path for directory in watched_directories([str(tmp_path / "a")])} == {str(tmp_path)}
