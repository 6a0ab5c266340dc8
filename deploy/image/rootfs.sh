#!/usr/bin/env bash
# Builds the image's root file system without a container engine: the same packages, the same wheel, the same commands
# as the Dockerfile. The kernel tests run kbpf inside it. Called by `make image-rootfs`, as root.
#
# rootfs.sh DIRECTORY    made anew when the packages, the constraints or kbpf's sources have changed
set -euo pipefail
cd "$(dirname "$0")/../.."
target=$1
release=bookworm

fingerprint() {
	cat deploy/image/* pyproject.toml
	find kbpf bpf examples -type f ! -name '*.pyc' -print0 | sort --zero-terminated | xargs --null sha256sum
}

wanted=$(fingerprint | sha256sum)
if [ "$(cat "$target.made-from" 2>/dev/null)" = "$wanted" ]; then
	exit
fi
base=$target.base
packages=$(sed 's/#.*//' deploy/image/packages.txt | xargs | tr ' ' ,)
if [ "$(cat "$base.made-from" 2>/dev/null)" != "$release $packages" ]; then
	echo "image-rootfs: Debian $release with $packages (a minute or two)"
	rm -rf "$base"
	mkdir -p "$(dirname "$base")"
	mmdebstrap --quiet --variant=minbase "--include=ca-certificates,$packages" "$release" "$base"
	echo "$release $packages" >"$base.made-from"
fi
echo "image-rootfs: kbpf's wheel and its dependencies"
rm -rf "$target"
cp --archive --reflink=auto "$base" "$target"
mkdir "$target/tmp/image"
.venv/bin/pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$target/tmp/image" .
cp deploy/image/install.sh deploy/image/constraints.txt "$target/tmp/image"
# The machine's way to the package index: its name servers, and the authorities that it trusts.
cp --dereference /etc/resolv.conf "$target/etc/resolv.conf"
cp /etc/ssl/certs/ca-certificates.crt "$target/tmp/image"
wheel=$(cd "$target" && echo tmp/image/*.whl)
chroot "$target" env --unset=REQUESTS_CA_BUNDLE --unset=CURL_CA_BUNDLE PIP_CERT=/tmp/image/ca-certificates.crt \
	sh /tmp/image/install.sh "/$wheel" /tmp/image/constraints.txt
rm -rf "$target/tmp/image"
: >"$target/etc/resolv.conf"
echo "$wanted" >"$target.made-from"
