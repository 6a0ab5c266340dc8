#!/usr/bin/env bash
# Makes the minimal root file system of a distribution, with apt and the machine's way to the network, once: the package
# is installed in copies of it, and the tests run in copies of it. As root; no container engine.
#
# root.sh RELEASE    bookworm, trixie or noble; prints where it is
set -euo pipefail
cd "$(dirname "$0")/../.."
release=$1
root=build/distributions/$release
made_from="$release minbase 1"

if [ "$(cat "$root.made-from" 2>/dev/null)" != "$made_from" ]; then
	echo "distributions: $release (a minute)" >&2
	rm -rf "$root"
	mkdir -p "$(dirname "$root")"
	mmdebstrap --quiet --variant=minbase --include=ca-certificates "$release" "$root" >&2
	# The machine's way out: its name servers, and the authorities that it trusts.
	cp --dereference /etc/resolv.conf "$root/etc/resolv.conf"
	cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
	echo "$made_from" >"$root.made-from"
fi
echo "$root"
