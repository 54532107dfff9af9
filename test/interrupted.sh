#!/usr/bin/env bash
# Interrupts test/run.sh in the middle of tiers, as Ctrl-C does, and looks whether anything is left:
#
#   test/interrupted.sh [TIER...]    unit sim containerd (root) cluster, if none is named
set -uo pipefail
cd "$(dirname "$0")/.."
export GOFLAGS="${GOFLAGS:-} -count=1" # results that are kept would end a tier before its middle
tiers=("$@")
[ $# -gt 0 ] || tiers=(unit sim containerd cluster)
declare -A running=( # what is running when the tier is in its middle
    [unit]='\.test$'
    [sim]='/numalet$'
    [containerd]='/containerd-shim-runc-v2$'
    [cluster]='/kube-controller-manager$'
)
failed=0

complain() {
    echo "FAIL: tier $tier: $*" >&2
    failed=1
}

# programs are the executables of the processes that were started with the TMPDIR.
programs() { # TMPDIR
    local file
    for file in $(grep -slzE "^TMPDIR=$1(/|\$)" /proc/[0-9]*/environ); do
        readlink "${file%environ}exe"
    done
}

# await waits until the tier is in its middle; false: it has ended before.
await() { # PID
    local dir
    found=
    while kill -0 "$1" 2>/dev/null; do
        dir=$(readlink "/proc/$1/fd/8") # the folder, which the script has locked
        if [ -n "$dir" ] && programs "$dir" | grep -E "${running[$tier]}" >/dev/null; then
            found=$dir
            return 0
        fi
        sleep 0.05
    done
    return 1
}

for tier in "${tiers[@]}"; do
    log=$(mktemp)
    set -m # a process group of its own
    env --default-signal=INT test/run.sh "$tier" >"$log" 2>&1 </dev/null 8>&- &
    set +m
    pid=$!
    if ! await $pid; then
        cat "$log"
        complain "it ended before it was interrupted"
        continue
    fi
    began=$SECONDS
    kill -INT -- -$pid # the terminal tells all of its foreground
    wait $pid
    code=$?
    [ $code = 130 ] || complain "exit code $code"
    [ ! -e "$found" ] || complain "$found is left: $(ls -A "$found" | head -n 20)"
    left=$(programs "$found")
    [ -z "$left" ] || complain "processes are left: $left"
    left=$(find /sys/fs/cgroup -maxdepth 2 -name "${found##*/}-*")
    [ -z "$left" ] || complain "cgroups are left: $left"
    left=$(grep -F " $found/" /proc/self/mountinfo)
    [ -z "$left" ] || complain "mounts are left: $left"
    left=$(ls -d /dev/shm/"${found##*/}"-* 2>/dev/null)
    [ -z "$left" ] || complain "in memory is left: $left"
    echo "tier $tier: interrupted and clean after $((SECONDS - began)) s"
    [ $failed = 0 ] || cat "$log"
    rm "$log"
done
exit $failed
