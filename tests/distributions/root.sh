#!/usr/bin/env bash
# Makes the minimal root file system of a distribution, with apt and the machine's way to the network, once: the package
# is installed in copies of it, and the tests run in copies of it. As root; no container engine.
#
# root.sh RELEASE    bookworm, trixie or noble; prints where it is
set -euo pipefail
cd "$(dirname "$0")/../.."
release=$1
root=build/distributions/$release
made_from="$release with apt"
options=()

# Debian brings the keys of Ubuntu's archive, since its release 13.
use_keys_of_ubuntu() {
	local newer folder=build/distributions/keys
	newer=$(tests/distributions/root.sh trixie)
	chroot "$newer" apt-get --quiet=2 update >&2
	chroot "$newer" sh -c 'cd /tmp && apt-get --quiet=2 download ubuntu-keyring' >&2
	mkdir -p "$folder"
	dpkg-deb --extract "$newer"/tmp/ubuntu-keyring_*.deb "$folder"
	rm "$newer"/tmp/ubuntu-keyring_*.deb
	options+=("--keyring=$folder/usr/share/keyrings" --components=main,universe)
}

if [ "$(cat "$root.made-from" 2>/dev/null)" != "$made_from" ]; then
	echo "distributions: $release (a minute)" >&2
	rm -rf "$root"
	mkdir -p "$(dirname "$root")"
	[ "$release" != noble ] || use_keys_of_ubuntu
	mmdebstrap --quiet --variant=minbase --include=apt,ca-certificates "${options[@]}" "$release" "$root" >&2
	# The machine's way out: its name servers, and the authorities that it trusts.
	cp --dereference /etc/resolv.conf "$root/etc/resolv.conf"
	cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
	echo "$made_from" >"$root.made-from"
fi
echo "$root"
