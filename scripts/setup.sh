#!/usr/bin/env bash
# Brings a fresh Debian 12, Debian 13 or Ubuntu 24.04 to the point where kbpf runs and its tests pass: distribution
# packages (as root) and the virtual environment .venv. Called by every make target; done in well under a second when
# nothing is missing.
#
# setup.sh [PACKAGE…]    with these packages, too
# setup.sh --list        only says which packages it would want
set -euo pipefail
cd "$(dirname "$0")/.."

# BCC comes from the distribution: it must match the libbcc beside it, and the package named "bcc" on PyPI is unrelated.
# The loader child runs under this interpreter, because only this one sees the distribution's bcc.
python=/usr/bin/python3
packages=(
	python3 python3-venv
	python3-bpfcc # compiles and loads the programs; brings libbpf, which the daemon reads maps with
	iptables      # the fallback datapath, nft and legacy
	iproute2      # the namespaces of `kbpf demo` and of the kernel tests
	kmod          # the kernel's modules for iptables matches
	mount         # bpffs, when the distribution has not mounted it
	util-linux    # nsenter
	conntrack nftables # with which the kernel tests ask and disturb the kernel; kbpf needs neither
	gcc libc6-dev # the packet programs in user space, under sanitizers
	ca-certificates
)

if [ "${1-}" = --list ]; then
	printf '%s\n' "${packages[@]}"
	exit
fi

# What one target alone needs, such as the compiler of the load generator.
packages+=("$@")

installed() {
	[ "$(dpkg-query --show --showformat='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

install_packages() {
	local missing=() package
	for package in "${packages[@]}"; do
		installed "$package" || missing+=("$package")
	done
	[ ${#missing[@]} -gt 0 ] || return 0
	if [ "$(id -u)" -ne 0 ]; then
		echo "setup: packages are missing; as root: apt-get install --no-install-recommends ${missing[*]}" >&2
		return 1
	fi
	echo "setup: installing ${missing[*]}"
	export DEBIAN_FRONTEND=noninteractive
	apt-get update --quiet=2
	apt-get install --quiet=2 --yes --no-install-recommends "${missing[@]}" >/dev/null
}

# What the environment was made from: another interpreter, other dependencies or a moved checkout need a new one.
fingerprint() {
	$python --version
	pwd
	$python -c 'import tomllib; t = tomllib.load(open("pyproject.toml", "rb")); print(t["build-system"], t["project"])'
}

make_environment() {
	local wanted
	wanted=$(fingerprint | sha256sum)
	[ "$(cat .venv/.made-from 2>/dev/null)" != "$wanted" ] || return 0
	echo "setup: making .venv"
	$python -m venv --clear .venv
	.venv/bin/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	echo "$wanted" >.venv/.made-from
}

if command -v dpkg-query >/dev/null; then
	install_packages
else
	echo "setup: not Debian or Ubuntu: these packages, or what they are called here, must be installed: ${packages[*]}" >&2
fi
make_environment
