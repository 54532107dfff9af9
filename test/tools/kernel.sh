#!/bin/sh
# Gets a kernel of Debian, with its modules, and prints the folder it is unpacked in: boot/ and
# lib/modules/ as in the package. Nothing is installed, and once there it is used again.
#
#   kernel.sh        the one for clouds
#   kernel.sh full   the one for all machines, which has drivers of more hardware. The folder's name is
#                    the hash of everything that decides its content: of the modules it has those below
#                    and what they need, and boot/initrd loads those that the root needs
set -eu

kind=${1:-cloud}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/numalet
case $kind in
cloud)
	package=linux-image-cloud-amd64
	size=26
	kernel=$cache/kernel
	;;
full)
	package=linux-image-amd64
	size=70
	kernel=$cache/kernel-full-$(sha256sum "$0" | cut -c1-16)
	;;
*)
	echo "kernel: there is no $kind: it is cloud (the default) or full" >&2
	exit 2
	;;
esac
# For the root: a disk of the emulator; for containers; for runc, which does not move an interface
# without all kinds of netlink; network functions that have virtual ones; RDMA over any interface, with
# all of its device nodes.
modules="nvme crct10dif_generic ext4 crc32c_generic
	virtio_pci virtio_net virtio_blk veth overlay
	xfrm_user nfnetlink
	igb igbvf
	rdma_rxe crc32_generic ib_uverbs ib_umad rdma_ucm"

say() { echo "kernel: $*" >&2; }

# reduce removes the modules that are not needed. In modules.dep each has a line with all that it needs.
reduce() {
	# shellcheck disable=SC2086 # a list of modules
	needed=$(for module in $modules; do
		sed -n "\,/$module\.ko:,s,:,,p" lib/modules/*/modules.dep | grep . ||
			say "there is no module $module"
	done | tr ' ' '\n' | sort -u)
	mkdir kept
	for file in $needed; do
		mkdir -p "kept/${file%/*}"
		mv lib/modules/*/"$file" "kept/$file"
	done
	rm -rf "lib/modules/$release/kernel" usr
	mv kept/kernel "lib/modules/$release/"
	rmdir kept
}

# initrd makes what loads the modules that the root needs, and goes on from there.
initrd() {
	mkdir -p initrd/bin initrd/sbin initrd/dev initrd/proc initrd/sys initrd/root initrd/lib
	cp "$(command -v busybox)" initrd/bin/busybox
	ln -s /bin/busybox initrd/sbin/modprobe # the kernel calls it there
	cp -a lib/modules initrd/lib/modules
	cat >initrd/init <<'END'
#!/bin/busybox sh
export PATH=/bin:/sbin
busybox mount -t devtmpfs devtmpfs /dev
busybox mount -t proc proc /proc
busybox mount -t sysfs sysfs /sys
modprobe -a crct10dif_generic crc32c_generic nvme ext4
root=$(busybox sed -n 's/.*\broot=\([^ ]*\).*/\1/p' /proc/cmdline)
until [ -b "$root" ]; do busybox sleep 0.1; done
busybox mount -t ext4 "$root" /root
busybox umount /sys /proc /dev
exec busybox switch_root /root /sbin/init
END
	chmod 755 initrd/init
	(cd initrd && find . | busybox cpio -o -H newc | gzip -1) >boot/initrd
	rm -rf initrd
}

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
	say "$package is downloaded, $size MB, once: about half a minute"
	if ! fetch 2>/dev/null; then
		apt-get update -qq >&2 # the lists name a version that is gone, or there are none yet
		fetch
	fi
	dpkg -x ./*.deb .
	rm ./*.deb
	chmod 755 .
	release=$(ls lib/modules)
	busybox depmod -b . "$release" # what installing it would do
	if [ "$kind" = full ]; then
		reduce
		busybox depmod -b . "$release"
		initrd
	fi
	mv "$new" "$kernel"
	trap - EXIT
	say "unpacked into $kernel"
fi
echo "$kernel"
