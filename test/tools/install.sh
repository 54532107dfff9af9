#!/bin/sh
# Installs the Debian packages that the container tests need and that are missing; "install.sh numa"
# those of the NUMA tests as well. Without root it names them in one line and exits 3.
set -eu

# package:a file that shows it is there
wanted="
runc:/usr/sbin/runc
strace:/usr/bin/strace
systemd:/lib/systemd/systemd
iptables:/usr/sbin/iptables
containernetworking-plugins:/usr/lib/cni/bridge
busybox-static:/usr/share/doc/busybox-static
xfsprogs:/sbin/mkfs.xfs|/usr/sbin/mkfs.xfs
e2fsprogs:/sbin/mkfs.ext4|/usr/sbin/mkfs.ext4
"
if [ "${1:-}" = numa ]; then
	wanted="$wanted
qemu-system-x86:/usr/bin/qemu-system-x86_64
gcc:/usr/bin/gcc
libc6-dev:/usr/include/stdlib.h
libseccomp-dev:/usr/include/seccomp.h
pkg-config:/usr/bin/pkg-config
dbus:/usr/bin/dbus-daemon
"
fi

missing=
for entry in $wanted; do
	found=
	for file in $(echo "${entry#*:}" | tr '|' ' '); do
		[ -e "$file" ] && found=1
	done
	[ -n "$found" ] || missing="$missing ${entry%%:*}"
done
missing=${missing# }
[ -n "$missing" ] || exit 0

if [ "$(id -u)" != 0 ]; then
	echo "install: missing Debian packages: $missing (run as root: apt-get install $missing)" >&2
	exit 3
fi
if ! command -v apt-get >/dev/null; then
	echo "install: missing: $missing, and no apt-get here: install them by hand" >&2
	exit 3
fi
echo "install: apt-get installs $missing: a minute or two, with downloads" >&2
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086 # a list of packages
if ! apt-get install -qq -y --no-install-recommends $missing >/dev/null 2>&1; then
	apt-get update -qq
	apt-get install -qq -y --no-install-recommends $missing >/dev/null
fi
