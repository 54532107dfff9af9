#!/usr/bin/env bash
# Runs tiers of tests: unit, sim, containerd, walks, numa, guests, cluster. Installs what a tier needs. A
# tier that cannot run here is left out with one line that says why; in CI (CI=true) that is a failure.
# SLOWEST=50 lists the longest tests of each tier.
# With --race before the tiers the race detector watches the test programs, and the agents and device
# plugins that they start (not numa, cluster); it needs gcc and takes several times as long.
# What tests make on the machine is found by their TMPDIR, a folder of this run, and is removed at the
# end, also after Ctrl-C. Only files that failed tests name are kept in it, until the next run.
set -uo pipefail
cd "$(dirname "$0")/.."
source test/scratch.sh
export CGO_ENABLED=0
# As the servers are built and the linters look at the code, so that what they share is compiled once.
export GOFLAGS="-trimpath ${GOFLAGS:-}"
race=()
limit=60m # of a package: a busy machine takes several times as long as a quiet one
parallel=6
if [ "${1:-}" = --race ]; then
    shift
    export CGO_ENABLED=1
    race=(-race)
    limit=90m
    parallel=3 # such an agent needs several times the CPU and memory
fi

# usually is how long a tier takes on two quiet cores when all has been compiled before, its own tests
# but for its last change; CONTRIBUTING.md has the same.
declare -A usually=([unit]=5m [sim]=6m [containerd]=4m [walks]=5m [numa]=6m [guests]=15m [cluster]=45m)

tiers=("$@")
for name in "${tiers[@]}"; do
    if [ -z "${usually[$name]:-}" ]; then
        echo "unknown tier $name; there are unit, sim, containerd, walks, numa, guests, cluster" >&2
        exit 2
    fi
done

failed=0
summary=()
declare -A group=() began=() # of the tiers that run: the process group, and the second of the start

interrupted() { # what was started ends as after Ctrl-C, which reaches only this script
    trap '' INT TERM HUP
    echo "== interrupted: ending what runs and cleaning up" >&2
    local name
    for name in "${!group[@]}"; do
        kill -INT -- "-${group[$name]}" 2>/dev/null
    done
    scratch_leave
    exit 130
}

leave_out() { # TIER WHY
    echo "LEFT OUT: tier $1: $2"
    summary+=("$1: LEFT OUT, $2")
    if [ "${CI:-}" = true ]; then
        failed=1
    fi
}

# begin starts a tier in a process group of its own; end_tier waits for it.
begin() { # NAME
    echo "== tier $1, usually ${usually[$1]}"
    began[$1]=$SECONDS
    set -m
    "run_$1" </dev/null 8>&- &
    set +m
    group[$1]=$!
}

end_tier() { # NAME
    local result=ok took
    if ! wait "${group[$1]}"; then
        result=FAILED
        failed=1
    fi
    unset "group[$1]"
    took=$((SECONDS - began[$1]))
    summary+=("$1: $result, $took s$(sed 's/^/: /' "$TMPDIR/$1.failed" 2>/dev/null | tr -d '\n')")
    echo "== tier $1 $result in $took s"
}

# tests runs go test, without vet, which is among the linters, and without what debuggers read, which
# takes as long to link as the rest. Its lines are go test's, and between them how far it is.
tests() { # TIER ARGUMENT...
    local tier=$1
    shift
    go test -json -vet=off '-ldflags=-s -w' -timeout $limit "${race[@]}" "$@" |
        "$TMPDIR/progress" -tier "$tier" -usually "${usually[$tier]}" -slowest "${SLOWEST:-0}" \
        -failed "$TMPDIR/$tier.failed" "${show[@]}"
}
show=()

# with_containerd lists the packages beside the code whose tests start containerd. There are some.
with_containerd() {
    local found
    found=$(grep -rl --include='*_test.go' numalet/test/containerd/rig agent cri cmd) || {
        echo "no package beside the code starts containerd: the folders in $0 are out of date" >&2
        return 1
    }
    xargs -n 1 dirname <<<"$found" | sort -u | sed 's|^|github.com/numalet/numalet/|'
}

run_unit() { # random walks are short here; the tier walks has them in full
    local others
    others=$(with_containerd) || return 1
    # shellcheck disable=SC2046 # package paths have no spaces
    tests unit -p 4 -short $(go list ./... | grep -v '^github.com/numalet/numalet/test' |
        grep -vxF "$others") ./test/progress && run_cgo && (cd cmd/packaging && tests unit .)
}

# run_cgo tests what speaks to NVIDIA's libraries, where they can be compiled; with these tags nothing
# else is compiled anew for it. What is compared with NVIDIA's choices is pure, and a module of its own.
run_cgo() {
    if ! command -v "${CC:-gcc}" >/dev/null; then
        echo "LEFT OUT: deviceplugin/gpu/nvml: there is no C compiler"
        return 0
    fi
    export CGO_CFLAGS="-O2 -Wno-deprecated-declarations"
    CGO_ENABLED=1 tests unit -tags netgo,osusergo ./deviceplugin/gpu/nvml &&
        (cd test/gpuallocator && CGO_ENABLED=1 tests unit -tags netgo,osusergo .)
}

run_walks() { # what is shorter with -short: beside the code, and then, when builds have ended, with agents
    # shellcheck disable=SC2046 # package paths have no spaces
    tests walks $(grep -rl --include='*_test.go' 'testing\.Short()' . | grep -v '^\./test/' |
        xargs -n 1 dirname | sort -u) &&
        tests walks -run '^(TestPlaygroundOfPlainBuild|TestEveryPolicyChange)$' -count=1 ./test ./test/containerd
}

run_sim() {
    tests sim -count=1 -short -parallel $parallel ./test/ ./test/harness/...
}

run_containerd() { # one package at a time: a runtime that is starved starts pods in another order
    local beside
    beside=$(with_containerd) || return 1
    # shellcheck disable=SC2086 # package paths have no spaces
    tests containerd -p 1 -count=1 -short ./test/containerd/... $beside
}

# more_guests are tests that boot machines of their own, for some minutes each: the tier guests.
more_guests='^Test(Functions|Swap|Shortage|Shutdown|Quota|Disks)$'

run_numa() { # with what its tests say: its table is worth a look when it passes too
    show=(-v)
    tests numa -count=1 -skip "$more_guests" ./test/numa
}

run_guests() {
    show=(-v)
    tests guests -count=1 -run "$more_guests" ./test/numa
}

run_cluster() {
    tests cluster -count=1 ./test/cluster/...
}

asked() { # NAME...: reports whether one of these tiers is to run
    local name
    for name in "$@"; do
        case " ${tiers[*]} " in *" $name "*) return 0 ;; esac
    done
    return 1
}

# beside begins a command; built waits until it has ended. scratch_leave ends what is still under way.
declare -A building=()
beside() { # NAME COMMAND...
    local name=$1
    shift
    "$@" </dev/null 8>&- &
    building[$name]=$!
}

built() { # NAME
    wait "${building[$1]}"
}

# packages gets Debian's; root is needed if one is missing. The file packages says why it could not.
packages() {
    test/tools/install.sh "$@" 2>&1 | tee /dev/stderr | tail -n 1 >"$TMPDIR/packages" &&
        rm "$TMPDIR/packages"
}

# These print folders, into files; exported says so to the tests.
tools() { test/tools/build.sh >"$TMPDIR/tools"; }
kernel() { test/tools/kernel.sh >"$TMPDIR/kernel"; }
cluster() { # the sidecars of CSI drivers share code with the servers
    test/tools/build.sh cluster >"$TMPDIR/cluster" && test/tools/csi.sh >"$TMPDIR/csi"
}

exported() { # VARIABLE NAME
    export "$1=$(<"$TMPDIR/$2")"
}

# prepared waits for what a tier needs. lacking says why the tier cannot run here.
prepared() { # TIER
    lacking=
    case $1 in
    containerd | numa | guests | cluster)
        if [ -e "$TMPDIR/packages" ] && [ "$1" != cluster ]; then
            lacking=$(<"$TMPDIR/packages")
        elif [ "$1" = containerd ] && [ "$(id -u)" != 0 ]; then
            lacking="needs root (containers, cgroups, mounts)"
        elif ! built tools; then
            lacking="containerd could not be built"
        else
            exported NUMALET_TOOLS tools
        fi
        ;;
    esac
    case $1 in
    numa | guests)
        if ! built kernel; then
            lacking=${lacking:-the guest\'s kernel could not be had}
        else
            exported NUMALET_KERNEL kernel
        fi
        ;;
    cluster)
        if ! built cluster; then
            lacking="the servers of a cluster, or the sidecars of CSI drivers, could not be built"
        else
            exported NUMALET_CLUSTER cluster
            exported NUMALET_CSI csi
        fi
        ;;
    esac
    [ -z "$lacking" ]
}

trap interrupted INT TERM HUP
scratch_enter
echo "== go downloads and compiles what has changed: the first time some minutes on two cores" >&2
if asked numa guests; then
    beside packages packages numa
elif [ "$(id -u)" = 0 ]; then
    beside packages packages
fi
go build -o "$TMPDIR/progress" ./test/progress || exit 1
if asked sim containerd cluster && [ ${#race[@]} = 0 ]; then # the programs of tests, once for all
    go build -o "$TMPDIR/" ./cmd/numalet ./cmd/numalet-lab ./cmd/numalet-gpu && export NUMALET_PROGRAMS=$TMPDIR
fi
if [ -n "${building[packages]:-}" ]; then # some tests beside the code run programs of these
    built packages
fi
if asked numa guests cluster || { asked containerd && [ "$(id -u)" = 0 ]; }; then
    beside tools tools
fi
if asked numa guests; then
    beside kernel kernel
fi
if asked cluster; then
    beside cluster cluster
fi

if [ ${#race[@]} = 0 ]; then # sim goes on beside unit: each has some waiting in it
    asked unit && asked sim && begin sim
fi

for name in "${tiers[@]}"; do
    if [ -z "${group[$name]:-}" ]; then
        if ! prepared "$name"; then
            leave_out "$name" "$lacking"
            continue
        fi
        begin "$name"
    fi
    end_tier "$name"
done

scratch_leave $failed
echo "== summary"
printf '   %s\n' "${summary[@]}"
exit $failed
