"""Which files a path stands for, and reading them whole or not at all."""

import os
from pathlib import Path

import pytest

from kbpf.source.files import BeingWritten, files_of, is_stream, read_file, signature


def test_a_directory_stands_for_the_manifests_directly_in_it(tmp_path: Path):
    for name in ("b.yaml", "a.yml", "c.JSON", "notes.txt", ".hidden.yaml", "b.yaml~", ".b.yaml.swp", "yaml"):
        (tmp_path / name).touch()
    (tmp_path / "sub.yaml").mkdir()
    (tmp_path / "sub.yaml" / "x.yaml").touch()
    assert files_of(str(tmp_path)) == [str(tmp_path / name) for name in ("a.yml", "b.yaml", "c.JSON")]


def test_a_file_stands_for_itself_whatever_its_name(tmp_path: Path):
    (tmp_path / "services").touch()
    assert files_of(str(tmp_path / "services")) == [str(tmp_path / "services")]


def test_links_are_followed_and_dangling_ones_are_not_there(tmp_path: Path):
    (tmp_path / "..2024").mkdir()
    (tmp_path / "..2024" / "a.yaml").touch()
    (tmp_path / "..data").symlink_to("..2024")
    (tmp_path / "a.yaml").symlink_to("..data/a.yaml")
    (tmp_path / "b.yaml").symlink_to("..data/b.yaml")
    assert files_of(str(tmp_path)) == [str(tmp_path / "a.yaml")]


def test_a_pipe_among_the_manifests_is_passed_over(tmp_path: Path):
    os.mkfifo(tmp_path / "a.yaml")
    assert files_of(str(tmp_path)) == []
    assert is_stream(str(tmp_path / "a.yaml"))
    with pytest.raises(OSError, match="not a regular file"):
        read_file(str(tmp_path / "a.yaml"))


def test_nothing_there_is_an_error(tmp_path: Path):
    for call in (files_of, signature, read_file):
        with pytest.raises(FileNotFoundError):
            call(str(tmp_path / "a.yaml"))


def test_a_file_that_is_put_in_the_place_of_another_has_another_signature(tmp_path: Path):
    (tmp_path / "a").write_text("1")
    before = signature(str(tmp_path / "a"))
    (tmp_path / "b").write_text("2")
    os.utime(tmp_path / "b", ns=(before.modified_ns, before.modified_ns))
    (tmp_path / "b").rename(tmp_path / "a")
    assert signature(str(tmp_path / "a")) != before


def test_a_file_is_read_with_the_signature_it_has(tmp_path: Path):
    (tmp_path / "a").write_text("kind: Service")
    assert read_file(str(tmp_path / "a")) == (signature(str(tmp_path / "a")), b"kind: Service")


def test_a_file_that_is_just_written_may_change_unseen(tmp_path: Path):
    (tmp_path / "a").touch()
    assert signature(str(tmp_path / "a")).is_fresh
    os.utime(tmp_path / "a", (1, 1))
    assert not signature(str(tmp_path / "a"))._replace(changed_ns=0).is_fresh


def test_a_file_that_is_open_for_writing_is_not_read(tmp_path: Path):
    path = str(tmp_path / "a")
    with (tmp_path / "a").open("w") as writer:
        writer.write("kind: Serv")
        writer.flush()
        with pytest.raises(BeingWritten):
            read_file(path)
        assert read_file(path, even_if_being_written=True)[1] == b"kind: Serv"
    assert read_file(path)[1] == b"kind: Serv"


def test_a_reader_is_no_writer(tmp_path: Path):
    (tmp_path / "a").write_text("x")
    with (tmp_path / "a").open():
        assert read_file(str(tmp_path / "a"))[1] == b"x"


def test_a_file_of_absurd_size_is_refused(tmp_path: Path):
    with (tmp_path / "a").open("wb") as file:
        file.truncate(2 << 30)
    with pytest.raises(OSError, match="larger than 1024 MiB"):
        read_file(str(tmp_path / "a"))
