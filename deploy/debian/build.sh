#!/usr/bin/env bash
# Builds the Debian package for the distribution that this runs on: `make deb`. Its version is kbpf's own, with the
# distribution behind it, since the Python packages inside are compiled for the Python of one distribution.
#
# build.sh DIRECTORY    where the package is put
set -euo pipefail
cd "$(dirname "$0")/../.."
mkdir -p "$1"
target=$(realpath "$1")

version=$(sed --quiet 's/^__version__ = "\(.*\)"$/\1/p' kbpf/__init__.py)
distribution=$(. /etc/os-release && echo "$ID$VERSION_ID")
# Files are dated by the last commit, so that the same sources give the same package.
time=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat --format=%Y kbpf/__init__.py)}
export SOURCE_DATE_EPOCH=$time

build=$(mktemp --directory)
trap 'rm -rf "$build"' EXIT
source=$build/kbpf-$version
mkdir "$source"
cp --recursive deploy/debian "$source/debian"
rm "$source/debian/build.sh"
cp deploy/systemd/kbpf.service "$source/debian/kbpf.service"
cp deploy/image/constraints.txt CHANGELOG.md README.md "$source"
.venv/bin/pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$source" .
cat >"$source/debian/changelog" <<-END
	kbpf ($version-1~$distribution) unstable; urgency=medium

	  * What changed for operators stands in changelog.gz beside this file.

	 -- The kbpf authors <kbpf@users.noreply.github.com>  $(date --utc --rfc-email --date="@$time")
END
cd "$source"
log=$build/log
PIP=${OLDPWD}/.venv/bin/pip dpkg-buildpackage --build=binary --unsigned-changes --no-check-builddeps >"$log" 2>&1 || {
	cat "$log" >&2
	exit 1
}
rm -f "$target"/kbpf_*.deb
mv ../kbpf_*.deb "$target"
ls "$target"/kbpf_*.deb
