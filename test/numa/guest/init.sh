#!/bin/busybox sh
# The first process of the guest: makes it a machine, runs what the kernel's command line names, with
# its results on the second serial port, and ends the guest.
# GOMAXPROCS: with one for each of the guest's CPUs, Go programs have the few of the host spin.
export PATH=/bin:/sbin:/usr/bin:/usr/sbin HOME=/root CI=true GOMAXPROCS=4
export NUMALET_PATIENCE=6m
[ -e /bin/sh ] || /bin/busybox --install -s /bin

mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t tmpfs tmpfs /run
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir -p /dev/shm /dev/mqueue /dev/hugepages
mount -t tmpfs tmpfs /dev/shm
mount -t hugetlbfs hugetlbfs /dev/hugepages
hostname numa
ip link set lo up
modprobe -a virtio_pci virtio_net virtio_blk veth overlay

# NUMALET_HUGE is how many huge pages each node has, in the order of the nodes.
node=0
for pages in $(echo "$NUMALET_HUGE" | tr , ' '); do
    echo "$pages" >/sys/devices/system/node/node$node/hugepages/hugepages-2048kB/nr_hugepages
    node=$((node + 1))
done

# Filesystems that count projects, of the kinds that the kernel has.
modprobe -a loop quota_v2 xfs
for kind in ext4 xfs; do
    mkdir -p /run/prjquota/$kind
    mount -t $kind -o loop,prjquota /numa/prjquota.$kind /run/prjquota/$kind &&
        export NUMALET_PRJQUOTA="${NUMALET_PRJQUOTA:+$NUMALET_PRJQUOTA:}/run/prjquota/$kind"
done

stty -F /dev/ttyS1 raw
cd /numa || poweroff -f
read -r clock </sys/devices/system/clocksource/clocksource0/current_clocksource
echo "init: the machine is up after $(cut -d" " -f1 /proc/uptime) s; its clock is $clock"
# Whoever runs the guest ends it when this is not heard any more.
while sleep 15; do echo "init: alive"; done &
if [ -n "${NUMALET_SYSTEMD:-}" ]; then # systemd's unit does the rest
    env | grep -E '^(NUMALET_|PATH|HOME|CI|GOMAXPROCS)' >/run/numa.env
    exec /lib/systemd/systemd --unit=numa.target --show-status=false
fi
for program in $(echo "$NUMALET_RUN" | tr , ' '); do
    name=${program%%:*}
    pattern=${program#*:}
    echo "package $name" >/dev/ttyS1
    timeout -s QUIT "$NUMALET_SECONDS" "./$name.test" -test.v=test2json -test.run "$pattern" \
        >/dev/ttyS1
    echo "init: $name: exit code $?"
done
sync
poweroff -f
