"""What comes from the distribution: containerd, runc and CNI plugins, unpacked but not installed, and the pods' root
file system. Both are kept between runs."""

import platform
import shutil
import subprocess

from tests.e2e.folder import Folder
from tests.progress import step

RUNTIME = ("containerd", "runc", "containernetworking-plugins")
# What the tests run inside pods, besides agnhost.
POD_PACKAGES = (
    "bash",
    "bind9-dnsutils",
    "ca-certificates",
    "conntrack",
    "curl",
    "iperf",
    "iproute2",
    "iputils-ping",
    "netcat-openbsd",
    "socat",
    "wget",
)


def unpack_runtime(folder: Folder) -> None:
    if (folder.system / "usr/bin/containerd").exists():
        return
    with step("unpacking containerd, runc and CNI plugins of this distribution"):
        downloads = folder.root / "downloads"
        downloads.mkdir(exist_ok=True)
        subprocess.run(["apt-get", "update", "--quiet=2"], check=True)
        # As root apt would drop its rights for a folder that its user may not enter.
        command = ["apt-get", "--option", "APT::Sandbox::User=root", "download", "--quiet=2", *RUNTIME]
        subprocess.run(command, cwd=downloads, check=True)
        for package in sorted(downloads.glob("*.deb")):
            subprocess.run(["dpkg-deb", "--extract", package, folder.system], check=True)
        shutil.rmtree(downloads)


def build_pod_system(folder: Folder) -> None:
    """Made aside and moved in place when it is whole."""
    if folder.pod_system.exists():
        return
    with step("building the pods' root file system (a minute or two)"):
        unfinished = folder.root / "pods.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        release = platform.freedesktop_os_release()["VERSION_CODENAME"]
        include = f"--include={','.join(POD_PACKAGES)}"
        subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase", include, release, unfinished], check=True)
        unfinished.rename(folder.pod_system)
