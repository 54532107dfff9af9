#!/bin/sh
# Gets Debian's kernel for clouds, with its modules, and prints the folder it is unpacked in: boot/
# and lib/modules/ as in the package. Nothing is installed, and once there it is used again.
set -eu

package=linux-image-cloud-amd64
cache=${XDG_CACHE_HOME:-$HOME/.cache}/numalet
kernel=$cache/kernel

say() { echo "kernel: $*" >&2; }

mkdir -p "$cache"
exec 9>"$cache/kernel.lock"
flock -n 9 || { # another one is under way, and then nothing is left to do
	say "waiting for another download"
	flock 9
}

if [ ! -d "$kernel" ]; then
	if ! command -v apt-get >/dev/null; then
		say "no apt-get here: unpack Debian's $package into $kernel"
		exit 3
	fi
	new=$(mktemp -d "$cache/new.XXXXXX")
	trap 'rm -rf "$new"' EXIT
	trap 'exit 130' INT TERM HUP
	cd "$new"
	fetch() { # the package depends on the one that has the kernel
		apt-get -qq -o APT::Sandbox::User=root download \
			"$(apt-cache depends $package | sed -n 's/^ *Depends: //p')" >&2
	}
	say "$package is downloaded, 26 MB, once: about half a minute"
	if ! fetch 2>/dev/null; then
		apt-get update -qq >&2 # the lists name a version that is gone, or there are none yet
		fetch
	fi
	dpkg -x ./*.deb .
	rm ./*.deb
	chmod 755 .
	busybox depmod -b . "$(ls lib/modules)" # what installing it would do
	mv "$new" "$kernel"
	trap - EXIT
	say "unpacked into $kernel"
fi
echo "$kernel"
