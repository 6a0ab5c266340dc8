"""The configuration files of clusters come to the same in kbpf as in the real kube-proxy."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.programs import built
from tests.cluster.proxies import KBPF
from tests.parity.test_observed import UNUSED, fields

pytestmark = [pytest.mark.root, pytest.mark.parity]

SAMPLES = sorted((Path(__file__).parents[1] / "data" / "configurations").glob("*.yaml"))


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
@pytest.mark.parametrize("flags", [[], ["--hostname-override=N1"]], ids=["file", "name"])
def test_a_sample_means_the_same(sample: Path, flags: list[str], tmp_path: Path) -> None:
    control, own = (written(program, sample, flags, tmp_path) for program in (built("kube-proxy"), KBPF))
    compared = {name for name in control if not UNUSED.fullmatch(f".{name}")}
    assert {name: own.get(name) for name in compared} == {name: control[name] for name in compared}


def written(program: Path, sample: Path, flags: list[str], folder: Path) -> dict[str, Any]:
    target = folder / program.name
    command = [program, f"--config={sample}", f"--write-config-to={target}", *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return fields(yaml.safe_load(target.read_text()))
