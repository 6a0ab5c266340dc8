"""A configuration file that changes is noticed once; one that is merely touched, emptied or gone is not."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbpf.configuration.watch import ConfigurationWatch

PATIENCE_S = 5
LOOK_S = 0.005


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "config.yaml"
    file.write_text("mode: iptables")
    return file


@pytest.fixture
def changed(file: Path) -> Iterator[threading.Event]:
    event = threading.Event()
    watch = ConfigurationWatch(file, file.read_bytes(), event.set, LOOK_S)
    watch.start()
    yield event
    watch.stop()


def test_new_content_is_a_change(file: Path, changed: threading.Event):
    file.write_text("mode: ipvs")
    assert changed.wait(PATIENCE_S)


def test_a_link_that_leads_elsewhere_is_a_change(tmp_path: Path, file: Path, changed: threading.Event):
    """So do mounted ConfigMaps change."""
    (tmp_path / "next").write_text("mode: ipvs")
    (tmp_path / "link").symlink_to("next")
    (tmp_path / "link").replace(file)
    assert changed.wait(PATIENCE_S)


def test_the_same_content_an_empty_file_and_none_are_no_change(file: Path, changed: threading.Event):
    file.write_text("mode: iptables")
    file.write_text("")
    file.unlink()
    assert not changed.wait(20 * LOOK_S)
