#!/usr/bin/env bash
# First process of a node: covers what must be the node's own, then runs containerd and kubelet until it is killed.
#
# init.sh NAME STATE SYSTEM KUBELET    the node's name and folder, the folder of unpacked packages, the kubelet
# Archives of images to import stand in STATE/images.
set -euo pipefail
name=$1 state=$2 system=$3 kubelet=$4

mount --make-rprivate /
hostname "$name"
mount -t proc proc /proc
mount -t sysfs sysfs /sys
# The cgroup namespace makes this the node's own tree: programs attached here see this node's sockets only.
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t bpf bpf /sys/fs/bpf
mount -t tmpfs tmpfs /run
mkdir -p /run/lock /run/netns
mount -t tmpfs tmpfs /var/log
mount -t tmpfs tmpfs /var/lib
for folder in kubelet containerd cni; do
	mkdir -p "/var/lib/$folder" "$state/lib/$folder"
	mount --bind "$state/lib/$folder" "/var/lib/$folder"
done
mkdir -p /var/log/pods /var/log/containers

# kubelet writes these for the whole machine; here it finds plain files that already say what it wants.
while read -r key value; do
	file=$state/${key//\//.}
	echo "$value" >"$file"
	mount --bind "$file" "/proc/sys/$key"
done <<-SYSCTLS
	vm/overcommit_memory 1
	vm/panic_on_oom 0
	kernel/panic 10
	kernel/panic_on_oops 1
	kernel/keys/root_maxkeys 1000000
	kernel/keys/root_maxbytes 25000000
SYSCTLS
mount --bind "$state/resolv.conf" /etc/resolv.conf
mount --make-rshared /

export PATH=$system/usr/sbin:$system/usr/bin:$PATH
containerd --config "$state/containerd.toml" >"$state/containerd.log" 2>&1 &
for ((tries = 0; tries < 150; tries++)); do
	[ ! -S /run/containerd/containerd.sock ] || break
	sleep 0.2
done
for archive in "$state"/images/*.tar; do
	ctr --namespace k8s.io images import "$archive" >>"$state/import.log"
done
"$kubelet" "--config=$state/kubelet.yaml" "--kubeconfig=$state/kubeconfig" "--hostname-override=$name" \
	"--node-ip=$(cat "$state/addresses")" --root-dir=/var/lib/kubelet --v=2 >"$state/kubelet.log" 2>&1 &
wait -n
echo "containerd or kubelet of $name ended" >&2
exit 1
