#!/bin/sh
# hugetlb.sh NAME removes the cgroups for huge pages whose names begin with NAME-, if their hierarchy is
# mounted nowhere: a test whose machine has none mounts one for itself. Until it is gone, runtimes on the
# machine look for its place in vain. The kernel lets go of it a moment after its last cgroup.
for _ in 1 2 3 4 5 6 7 8 9 10; do
    if ! grep -q :hugetlb: /proc/self/cgroup || [ -e /sys/fs/cgroup/hugetlb ]; then
        exit 0
    fi
    # shellcheck disable=SC2016 # of the inner shell
    unshare --mount sh -c 'mount -t tmpfs none /mnt && mkdir /mnt/h && cd /mnt &&
        mount -t cgroup -o hugetlb cgroup h &&
        find h -mindepth 1 -path "h/$0-*" -depth -type d -exec rmdir {} +
        umount h' "$1"
    sleep 0.2
done
echo "a hierarchy of cgroups for huge pages is left" >&2
