#!/bin/sh
# Installs kbpf's wheel and its dependencies below /opt/kbpf, and takes away what only the installation needed. Runs as
# root inside the image's root file system, from the Dockerfile and from rootfs.sh.
#
# install.sh WHEEL CONSTRAINTS
set -eu
wheel=$1 constraints=$2

/usr/bin/python3 -m venv /opt/kbpf
/opt/kbpf/bin/pip install --quiet --no-cache-dir --disable-pip-version-check --constraint "$constraints" "$wheel"
/opt/kbpf/bin/pip uninstall --quiet --yes --disable-pip-version-check pip setuptools 2>/dev/null ||
	/opt/kbpf/bin/pip uninstall --quiet --yes --disable-pip-version-check pip
ln -sf /opt/kbpf/bin/kbpf /usr/local/bin/kbpf
# Byte code named by content, not by time: the same sources give the same image.
find /opt/kbpf -name __pycache__ -prune -exec rm -rf {} +
/usr/bin/python3 -m compileall -q --invalidation-mode unchecked-hash /opt/kbpf/lib
rm -rf /var/cache/apt /var/lib/apt/lists /var/log/* /var/cache/ldconfig/aux-cache
