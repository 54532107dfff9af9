#!/bin/sh
# Gets Debian's initiator of iSCSI, its server of NFS and SELinux's compiler of policies, and prints the
# folder they are unpacked in. Nothing is installed, and once there it is used again.
set -eu

packages="open-iscsi libopeniscsiusr libisns0 libmount1 libkmod2 nfs-common nfs-kernel-server libnfsidmap1
	libtirpc3 libtirpc-common libwrap0 libkeyutils1 libevent-core-2.1-7 libdevmapper1.02.1 libcap2 netbase checkpolicy"
cache=${XDG_CACHE_HOME:-$HOME/.cache}/numalet
to=$cache/storage-$(sha256sum "$0" | cut -c1-16)

mkdir -p "$cache"
exec 9>"$cache/storage.lock"
flock 9
if [ ! -d "$to" ]; then
	if ! command -v apt-get >/dev/null; then
		echo "storage: no apt-get here: unpack Debian's $packages into $to" >&2
		exit 3
	fi
	new=$(mktemp -d "$cache/new.XXXXXX")
	trap 'rm -rf "$new"' EXIT
	trap 'exit 130' INT TERM HUP
	cd "$new"
	# shellcheck disable=SC2086 # a list of packages
	fetch() { apt-get -qq -o APT::Sandbox::User=root download $packages >&2; }
	if ! fetch 2>/dev/null; then
		apt-get update -qq >&2
		fetch
	fi
	for package in ./*.deb; do
		dpkg -x "$package" .
	done
	rm ./*.deb
	chmod 755 .
	mv "$new" "$to"
	trap - EXIT
fi
echo "$to"
