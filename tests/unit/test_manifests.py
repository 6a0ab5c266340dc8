import yaml

from tests.builders import endpoint_slice, service
from tests.manifests import manifest, write_manifests


def test_built_objects_become_documents_as_kubectl_spells_them():
    written = list(yaml.safe_load_all(manifest(service("web"), endpoint_slice("web", "10.42.1.5"))))
    assert [document["kind"] for document in written] == ["Service", "EndpointSlice"]
    assert written[0]["spec"]["clusterIP"] == "10.96.0.10"
    assert written[1] == {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "web-ipv4",
            "namespace": "shop",
            "labels": {"kubernetes.io/service-name": "web"},
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.42.1.5"], "conditions": {}, "nodeName": "n1"}],
        "ports": [{"name": "", "protocol": "TCP", "port": 8080}],
    }


def test_a_file_is_replaced_in_one_step(tmp_path):
    directory = write_manifests(tmp_path / "manifests", service("web"))
    before = (directory / "objects.yaml").stat().st_ino
    write_manifests(directory, service("dns"))
    assert [path.name for path in directory.iterdir()] == ["objects.yaml"]
    assert (directory / "objects.yaml").stat().st_ino != before
    assert "dns" in (directory / "objects.yaml").read_text()
