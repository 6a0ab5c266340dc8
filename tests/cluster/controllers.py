"""The controllers that make EndpointSlices out of Services and Pods: the real kube-controller-manager, and only those.

Nothing collects garbage: whoever deletes a Service deletes its slices.
"""

from tests.cluster.control_plane import ControlPlane
from tests.cluster.programs import Program, built


def start_controllers(control_plane: ControlPlane) -> Program:
    return Program(
        control_plane.folder / "kube-controller-manager.log",
        [
            built("kube-controller-manager"),
            f"--kubeconfig={control_plane.kubeconfig()}",
            "--controllers=endpointslice-controller,endpointslice-mirroring-controller",
            "--leader-elect=false",
            "--secure-port=0",
            "--kube-api-qps=500",
            "--kube-api-burst=500",
        ],
    )
