#!/usr/bin/env bash
# Runs a command in another distribution's root file system as if the machine ran that distribution: its processes,
# cgroups, BPF pins and modules are the machine's, the files are those of the root. The caller has made a mount namespace
# for this, so that all of it ends with the command.
#
# enter.sh ROOT FOLDER COMMAND...    FOLDER: where in the root the command starts
set -euo pipefail
root=$1 folder=$2
shift 2

mount --bind "$root" "$root"
mount --rbind /proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/tmp"
if [ -d /lib/modules ]; then
	mkdir -p "$root/usr/lib/modules"
	mount --bind --options ro /lib/modules "$root/usr/lib/modules"
fi
# Nothing of the machine's environment but its terminal: tools and paths are the distribution's. A shell's background job
# ignores Ctrl-C, and so would the programs whose end by it is tested.
exec chroot "$root" env --ignore-environment --default-signal=INT --chdir="$folder" \
	PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 TERM="${TERM:-dumb}" \
	DEBIAN_FRONTEND=noninteractive PIP_CERT=/etc/ssl/certs/ca-certificates.crt PYTEST_ADDOPTS="${PYTEST_ADDOPTS:-}" \
	"$@"
