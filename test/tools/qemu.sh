#!/bin/sh
# Prints the command of an emulator that has network functions with virtual ones (igb, since qemu 8):
# the one that is installed, or else the one of Debian's backports, unpacked beside the other tools.
# What that needs of libraries the installed one has too.
set -eu

suite=bookworm-backports
packages="qemu-system-x86 qemu-system-data seabios"
cache=${XDG_CACHE_HOME:-$HOME/.cache}/numalet
qemu=$cache/qemu-$(sha256sum "$0" | cut -c1-16)

say() { echo "qemu: $*" >&2; }

if qemu-system-x86_64 -device help 2>/dev/null | grep -q '"igb"'; then
	echo qemu-system-x86_64
	exit
fi
mkdir -p "$cache"
exec 9>"$cache/qemu.lock"
flock 9 # another download may be under way, and then nothing is left to do
if [ ! -d "$qemu" ]; then
	if ! command -v apt-get >/dev/null; then
		say "no apt-get here, and the installed qemu has no igb: install qemu 8 or newer"
		exit 3
	fi
	# From where the machine's own packages come.
	mirror=$(apt-get indextargets --no-release-info --format '$(RELEASE) $(REPO_URI)' \
		'Created-By: Packages' | sed -n "s,^${suite%-backports} ,,p" | head -n 1)
	if [ -z "$mirror" ]; then
		say "apt has no source of Debian's ${suite%-backports}, and the installed qemu has no igb:" \
			"install qemu 8 or newer"
		exit 3
	fi
	say "one that has igb is downloaded, 13 MB, once"
	new=$(mktemp -d "$cache/new.XXXXXX")
	trap 'rm -rf "$new"' EXIT
	trap 'exit 130' INT TERM HUP
	cd "$new"
	mkdir -p apt/lists/partial
	echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]" \
		"$mirror $suite main" >apt/sources.list
	apt() { # with lists of its own, so that nothing of the machine's changes
		apt-get -qq -o APT::Sandbox::User=root -o Dir::Etc::SourceList="$new/apt/sources.list" \
			-o Dir::Etc::SourceParts=- -o Dir::State::Lists="$new/apt/lists" \
			-o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= "$@" >&2
	}
	apt update
	# shellcheck disable=SC2086 # a list of packages
	apt download $packages
	for package in ./*.deb; do
		dpkg -x "$package" .
	done
	rm -rf apt ./*.deb
	chmod 755 .
	mv "$new" "$qemu"
	trap - EXIT
fi
echo "$qemu/usr/bin/qemu-system-x86_64 -L $qemu/usr/share/qemu -L $qemu/usr/share/seabios" \
	"-L /usr/share/qemu"
