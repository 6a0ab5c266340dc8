#!/usr/bin/env bash
# Runs a command in the image's root file system as the DaemonSet's container is run: mounts, rights, read-only root.
# The caller has made a mount namespace for this and entered the node's network namespace.
#
# contain.sh ROOT RIGHTS FOLDER COMMAND...    RIGHTS: "all", or capabilities with commas; FOLDER: configuration
set -euo pipefail
root=$1 rights=$2 folder=$3
shift 3

mount --bind "$root" "$root"
mount --rbind /proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount --rbind /sys/fs/bpf "$root/sys/fs/bpf"
mount --rbind /sys/fs/cgroup "$root/sys/fs/cgroup"
mount -t tmpfs tmpfs "$root/dev"
for device in null zero random urandom; do
	cp --archive "/dev/$device" "$root/dev/$device"
done
mount -t tmpfs tmpfs "$root/run"
touch /run/xtables.lock "$root/run/xtables.lock"
mount --bind /run/xtables.lock "$root/run/xtables.lock"
mount -t tmpfs tmpfs "$root/tmp"
mkdir -p "$root/tmp/config"
mount --bind --options ro "$folder" "$root/tmp/config"
mount --options remount,bind,ro "$root"
if [ "$rights" = all ]; then
	exec chroot "$root" "$@"
fi
# What a container runtime does to a container without `privileged`.
mount --bind "$root/proc/sys" "$root/proc/sys"
mount --options remount,bind,ro "$root/proc/sys"
bounding="-all"
for capability in ${rights//,/ }; do
	bounding+=",+${capability,,}"
done
exec chroot "$root" setpriv "--bounding-set=$bounding" --no-new-privs "$@"
