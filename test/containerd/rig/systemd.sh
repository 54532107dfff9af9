# Starts a systemd of its own, in new namespaces and below the cgroup $1, with the units in $2. It ends
# as its test.service does.
set -eu
hierarchies() { awk '$3 ~ /^cgroup2?$/ { print $2, $3, $4 }' /proc/mounts; }
if [ "${3:-}" != inside ]; then
	hierarchies | while read -r at _ _; do
		mkdir -p "$at/$1"
		for file in cpuset.cpus cpuset.mems; do # of cgroup v1, where a new one has none
			[ ! -e "$at/$file" ] || cat "$at/$file" >"$at/$1/$file" || true
		done
		echo $$ >"$at/$1/cgroup.procs"
	done
	exec unshare --pid --fork --kill-child --mount --cgroup --ipc --uts sh "$0" "$1" "$2" inside
fi
mount --make-rprivate /
mount -t proc proc /proc
mount -t tmpfs -o mode=755 tmpfs /run
mkdir /run/lock
mounts=$(hierarchies)
umount -R /sys/fs/cgroup
case $mounts in
"/sys/fs/cgroup "*) ;;
*) mount -t tmpfs -o mode=755 tmpfs /sys/fs/cgroup ;;
esac
echo "$mounts" | while read -r at kind options; do
	mkdir -p "$at"
	options=$(echo "$options" | tr , '\n' |
		grep -vxE 'rw|ro|relatime|noatime|nosuid|nodev|noexec' | paste -sd, -)
	mount -t "$kind" ${options:+-o "$options"} "$kind" "$at"
done
made=/run/systemd/system.control:/run/systemd/transient:/run/systemd/system # what is made while it runs
exec env -i container=numalet-test PATH="$PATH" SYSTEMD_UNIT_PATH="$2:$made" \
	/lib/systemd/systemd --system --unit=test.service --log-target=console --show-status=no
