"""Paths on disk as one set of objects; every test writes, refreshes and looks."""

import io
import os
import threading
from pathlib import Path

import pytest

from kbpf.clock import FakeClock
from kbpf.errors import ManifestError
from kbpf.model.events import Event, ServiceChanged
from kbpf.source.manifests import PATIENCE_S, Manifests, load_manifests


def service(name: str = "web", address: str = "10.96.0.10") -> str:
    return f"---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{clusterIP: {address}}}\n"


def seen(events: list[Event]) -> list[str]:
    """`web 10.96.0.10` for a Service that is there, `web -` for one that is gone."""
    words = []
    for event in events:
        assert isinstance(event, ServiceChanged)
        words.append(f"{event.name.name} {event.service.spec.cluster_ip if event.service else '-'}")
    return words


def lines(manifests: Manifests) -> list[str]:
    return [str(problem) for problem in manifests.take_problems()]


def test_files_and_directories_may_be_mixed(tmp_path: Path):
    (tmp_path / "one").write_text(service("a"))
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir" / "b.yaml").write_text(service("b") + service("c"))
    manifests = Manifests([str(tmp_path / "dir"), str(tmp_path / "one")], "n1")
    assert seen(manifests.refresh()) == ["a 10.96.0.10", "b 10.96.0.10", "c 10.96.0.10"]
    assert manifests.refresh() == []
    assert manifests.is_complete


def test_a_file_that_two_paths_lead_to_is_read_once(tmp_path: Path):
    (tmp_path / "a.yaml").write_text(service())
    manifests = Manifests([str(tmp_path), str(tmp_path / "a.yaml"), str(tmp_path)], "n1")
    assert seen(manifests.refresh()) == ["web 10.96.0.10"]
    assert lines(manifests) == []


def test_a_change_of_one_file_is_told(tmp_path: Path):
    (tmp_path / "a.yaml").write_text(service("a"))
    (tmp_path / "b.yaml").write_text(service("b"))
    manifests = Manifests([str(tmp_path)], "n1")
    manifests.refresh()
    (tmp_path / "b.yaml").write_text(service("b", "10.96.0.99"))
    assert seen(manifests.refresh()) == ["b 10.96.0.99"]


def test_a_change_of_the_same_size_within_one_tick_is_told(tmp_path: Path):
    path = tmp_path / "a.yaml"
    manifests = Manifests([str(path)], "n1")
    for number in range(10, 60):
        path.write_text(service("a", f"10.96.0.{number}"))
        os.utime(path, (1, 1))
        assert seen(manifests.refresh()) == [f"a 10.96.0.{number}"]


def test_a_removed_file_takes_its_objects_along(tmp_path: Path):
    (tmp_path / "a.yaml").write_text(service("a"))
    (tmp_path / "b.yaml").write_text(service("b"))
    manifests = Manifests([str(tmp_path)], "n1")
    manifests.refresh()
    (tmp_path / "a.yaml").unlink()
    assert seen(manifests.refresh()) == ["a -"]
    (tmp_path / "b.yaml").write_text("")
    assert seen(manifests.refresh()) == ["b -"]


def test_a_broken_file_keeps_its_last_good_state_and_is_named_once(tmp_path: Path):
    path = tmp_path / "a.yaml"
    path.write_text(service("a") + service("b"))
    manifests = Manifests([str(tmp_path)], "n1")
    manifests.refresh()
    path.write_text(service("a", "10.96.0.99") + "---\nkind: [\n")
    assert seen(manifests.refresh()) == ["a 10.96.0.99"]
    assert lines(manifests) == [f"{path}:8: did not find expected node content"]
    manifests.refresh()
    assert lines(manifests) == []
    path.write_text(service("a", "10.96.0.99"))
    assert seen(manifests.refresh()) == ["b -"]


def test_a_mounted_config_map_is_followed_through_its_swap(tmp_path: Path):
    for version, address in (("..1", "10.96.0.1"), ("..2", "10.96.0.2")):
        (tmp_path / version).mkdir()
        (tmp_path / version / "a.yaml").write_text(service("a", address))
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "a.yaml").symlink_to("..data/a.yaml")
    manifests = Manifests([str(tmp_path)], "n1")
    assert seen(manifests.refresh()) == ["a 10.96.0.1"]
    (tmp_path / "..data_tmp").symlink_to("..2")
    (tmp_path / "..data_tmp").rename(tmp_path / "..data")
    assert seen(manifests.refresh()) == ["a 10.96.0.2"]


def test_a_path_that_does_not_exist_is_named_once_and_read_when_it_appears(tmp_path: Path):
    path = tmp_path / "later" / "a.yaml"
    manifests = Manifests([str(path)], "n1")
    for expected in ([f"{path}: does not exist, read when it appears"], []):
        assert manifests.refresh() == []
        assert lines(manifests) == expected
        assert not manifests.is_complete
    path.parent.mkdir()
    path.write_text(service())
    assert seen(manifests.refresh()) == ["web 10.96.0.10"]
    assert manifests.is_complete
    path.unlink()
    assert seen(manifests.refresh()) == ["web -"]
    assert lines(manifests) == [f"{path}: does not exist, read when it appears"]


def test_a_directory_that_does_not_exist_is_read_when_it_appears(tmp_path: Path):
    directory = tmp_path / "later"
    manifests = Manifests([str(directory)], "n1")
    manifests.refresh()
    assert lines(manifests) == [f"{directory}: does not exist, read when it appears"]
    directory.mkdir()
    (directory / "a.yaml").write_text(service())
    assert seen(manifests.refresh()) == ["web 10.96.0.10"]
    assert lines(manifests) == []


def test_a_file_that_is_being_written_waits_for_its_writer(tmp_path: Path):
    path = tmp_path / "a.yaml"
    path.write_text(service("a"))
    manifests = Manifests([str(tmp_path)], "n1")
    manifests.refresh()
    with path.open("w") as writer:
        assert manifests.refresh() == []
        writer.write(service("a", "10.96.0.99"))
        writer.flush()
        assert manifests.refresh() == []
        assert (manifests.has_unfinished_files, manifests.is_complete) == (True, False)
    assert seen(manifests.refresh()) == ["a 10.96.0.99"]
    assert manifests.is_complete


def test_patience_with_a_writer_ends(tmp_path: Path):
    clock = FakeClock()
    path = tmp_path / "a.yaml"
    with path.open("w") as writer:
        writer.write(service("a"))
        writer.flush()
        manifests = Manifests([str(tmp_path)], "n1", clock)
        assert manifests.refresh() == []
        clock.advance(PATIENCE_S + 0.1)
        assert seen(manifests.refresh()) == ["a 10.96.0.10"]
        assert manifests.is_complete


def test_a_file_that_cannot_be_read_keeps_its_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "a.yaml"
    path.write_text(service("a"))
    manifests = Manifests([str(path)], "n1")
    manifests.refresh()
    path.unlink()
    path.mkdir()
    monkeypatch.setattr("kbpf.source.manifests.files_of", lambda path: [path])
    assert manifests.refresh() == []
    assert lines(manifests) == [f"{path}: cannot be read: not a regular file"]
    path.rmdir()
    path.write_text(service("a"))
    assert manifests.refresh() == []
    assert lines(manifests) == []


def test_a_path_that_cannot_be_looked_at_keeps_its_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "a.yaml").write_text(service("a"))
    manifests = Manifests([str(tmp_path)], "n1")
    manifests.refresh()

    def refuse(path: str) -> list[str]:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr("kbpf.source.manifests.files_of", refuse)
        assert manifests.refresh() == []
        assert lines(manifests) == [f"{tmp_path}: cannot be read: Permission denied"]
        manifests.refresh()
        assert lines(manifests) == []
    assert manifests.refresh() == []
    (tmp_path / "a.yaml").unlink()
    assert seen(manifests.refresh()) == ["a -"]


def test_standard_input_is_read_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(service().encode())))
    manifests = Manifests(["-"], "n1")
    assert seen(manifests.refresh()) == ["web 10.96.0.10"]
    assert manifests.refresh() == []


def test_problems_of_standard_input_name_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\nkind: Pod\n")))
    manifests = Manifests(["-"], "n1")
    manifests.refresh()
    assert lines(manifests) == ["standard input:2: apiVersion: missing, not applied"]
    monkeypatch.setattr("sys.stdin", None)
    manifests = Manifests(["-"], "n1")
    manifests.refresh()
    assert lines(manifests) == ["standard input: is closed"]


def test_a_pipe_is_read_once(tmp_path: Path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(service(),))
    writer.start()
    manifests = Manifests([str(pipe)], "n1")
    assert seen(manifests.refresh()) == ["web 10.96.0.10"]
    writer.join()
    assert manifests.refresh() == []
    pipe.unlink()
    assert manifests.refresh() == []


@pytest.mark.parametrize("path", ["a\0b", "", "x" * 5000])
def test_an_impossible_path_is_one_line(path: str):
    manifests = Manifests([path], "n1")
    assert manifests.refresh() == []
    assert len(lines(manifests)) == 1


def test_loading_once_gives_events_and_problems(tmp_path: Path):
    (tmp_path / "a.yaml").write_text(service() + "---\nkind: Pod\n")
    events, problems = load_manifests([str(tmp_path)], "n1")
    assert seen(events) == ["web 10.96.0.10"]
    assert [str(problem) for problem in problems] == [f"{tmp_path}/a.yaml:7: apiVersion: missing, not applied"]


def test_loading_what_does_not_exist_is_an_error(tmp_path: Path):
    with pytest.raises(ManifestError, match=r"--manifests .*/nothing: does not exist"):
        load_manifests([str(tmp_path / "nothing")], "n1")
