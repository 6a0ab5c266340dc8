from pathlib import Path

import pytest

from kbpf.demo.scene import examples, let_leave, read_scene, write


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    for path in examples().glob("*.yaml"):
        write(tmp_path / path.name, path.read_text())
    return tmp_path


def test_a_dual_stack_service_has_a_frontend_in_each_family_with_backends_of_that_family(manifests):
    both = [frontend for frontend in read_scene(manifests).frontends if frontend.service == "dual-stack"]
    assert [frontend.name for frontend in both] == ["10.96.0.20:80/tcp", "[fd96::20]:80/tcp"]
    assert both[1].backend_names == ("[fd42:1::10]:8081", "[fd42:1::11]:8081", "[fd42:1::12]:8081")


def test_a_pod_has_the_addresses_of_all_slices_that_name_it(manifests):
    assert read_scene(manifests).pods["web-0"] == ("10.42.1.10", "fd42:1::10")


def test_only_the_service_of_a_leaving_endpoint_loses_it(manifests):
    before = {frontend.name: set(frontend.backends) for frontend in read_scene(manifests).frontends}
    let_leave(manifests, "web", "10.42.1.12")
    after = {frontend.name: set(frontend.backends) for frontend in read_scene(manifests).frontends}
    gone = {name: before[name] - after[name] for name in before if before[name] != after[name]}
    assert gone == {"10.96.0.10:80/tcp": {("10.42.1.12", 8080)}}
    assert sorted(path.suffix for path in manifests.iterdir()) == [".yaml"] * len(before)
