"""The wheel in an environment of its own, away from the checkout: its command, its programs and its examples."""

import subprocess
from pathlib import Path

import pytest

from kbpf import __version__

pytestmark = pytest.mark.release

FOLDERS = "from kbpf.datapath.ebpf.source import bpf_folder; from kbpf.demo.scene import examples; "
FOLDERS += "print(bpf_folder(), examples(), sep='\\n')"
RENDERED = {"iptables": "-A KUBE-SERVICES", "ebpf": "frontends address=10.96.0.10 port=80 protocol=TCP"}


def run(command: list[str | Path], elsewhere: Path, statuses: tuple[int, ...] = (0,)) -> str:
    """Isolated from the checkout: another working directory, and no PYTHONPATH."""
    clean = ["env", "--unset=PYTHONPATH", *command]
    done = subprocess.run(clean, cwd=elsewhere, capture_output=True, text=True, check=False)
    assert done.returncode in statuses, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def examples(installed: Path, tmp_path: Path) -> Path:
    """The example manifests that the wheel brought."""
    folders = run([installed / "python", "-c", FOLDERS], tmp_path).splitlines()
    assert all(Path(folder).is_relative_to(installed.parent) for folder in folders)
    return Path(folders[1])


def test_it_says_its_version(installed: Path, tmp_path: Path) -> None:
    assert run([installed / "kbpf", "--version"], tmp_path) == f"kbpf, version {__version__}\n"


@pytest.mark.parametrize("datapath", RENDERED)
def test_it_renders_the_examples_that_it_brought(
    datapath: str, installed: Path, examples: Path, tmp_path: Path
) -> None:
    command = [installed / "kbpf", "render", f"--datapath={datapath}", "--manifests", examples]
    assert RENDERED[datapath] in run([*command, "--hostname-override=node-1"], tmp_path)


@pytest.mark.root
def test_it_explains_a_connection(installed: Path, examples: Path, tmp_path: Path) -> None:
    command = [installed / "kbpf", "explain", "10.42.1.9", "10.96.0.10:80", "--manifests", examples]
    # What the machine's own rules say to it is another matter: a status of 1 tells that they differ.
    answer = run([*command, "--hostname-override=node-1"], tmp_path, statuses=(0, 1))
    assert "10.96.0.10:80 is a ClusterIP of shop/web:http" in answer


@pytest.mark.root
def test_its_programs_compile_and_balance(installed: Path, tmp_path: Path) -> None:
    shown = run([installed / "kbpf", "demo", "--datapath=ebpf"], tmp_path)
    assert "ebpf: 10.42.1.12:8081 left under a stream of" in shown
