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
# but for its last change; README.md has the same.
declare -A usually=([unit]=3m [sim]=4m [containerd]=3m [walks]=3m [numa]=4m [guests]=15m [cluster]=33m)

for name in "$@"; do
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
    summary+=("$1: $result, $took s")
    echo "== tier $1 $result in $took s"
}

tier() { # NAME
    begin "$1"
    end_tier "$1"
}

# tests runs go test, without vet, which is among the linters, and without what debuggers read, which
# takes as long to link as the rest. Its lines are go test's, and between them how far it is.
tests() { # TIER ARGUMENT...
    local tier=$1
    shift
    go test -json -vet=off -ldflags=-w -timeout $limit "${race[@]}" "$@" |
        "$TMPDIR/progress" -tier "$tier" -usually "${usually[$tier]}" -slowest "${SLOWEST:-0}" "${show[@]}"
}
show=()

run_unit() { # random walks are short here; the tier walks has them in full
    # shellcheck disable=SC2046 # package paths have no spaces
    tests unit -short $(go list ./... | grep -v '^github.com/numalet/numalet/test') ./test/progress &&
        run_cgo
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

run_walks() { # the packages whose tests are shorter with -short
    # shellcheck disable=SC2046 # package paths have no spaces
    tests walks $(grep -rl --include='*_test.go' 'testing\.Short()' . | grep -v '^\./test/' |
        xargs -n 1 dirname | sort -u)
}

run_sim() { # these tests mostly wait
    tests sim -count=1 -parallel $parallel ./test/ ./test/harness/...
}

run_containerd() {
    tests containerd -count=1 ./test/containerd/...
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

# prepare gets what tests with a real containerd need; some of them are beside the code. lacking
# says why they cannot run.
lacking=
prepare() {
    local out
    if [ "$(id -u)" != 0 ]; then
        lacking="needs root (containers, cgroups, mounts)"
    elif ! out=$(test/tools/install.sh 2>&1 | tee /dev/stderr); then
        lacking=$(tail -n 1 <<<"$out")
    else
        build
    fi
}

build() {
    if ! NUMALET_TOOLS=$(test/tools/build.sh); then
        lacking="containerd could not be built"
    else
        export NUMALET_TOOLS
    fi
}

# prepare_numa gets what the emulated machine needs beyond Go; lacking_numa says why it cannot run.
# Root is needed to install only.
lacking_numa=
prepare_numa() {
    local out lacking=
    if ! out=$(test/tools/install.sh numa 2>&1 | tee /dev/stderr); then
        lacking=$(tail -n 1 <<<"$out")
    elif ! NUMALET_KERNEL=$(test/tools/kernel.sh); then
        lacking="the guest's kernel could not be had"
    else
        export NUMALET_KERNEL
        build
    fi
    lacking_numa=$lacking
}

# prepare_cluster builds the servers, and then the sidecars of CSI drivers, which share code with them,
# beside the tiers that come first; scratch_leave ends it if that is too early. await_cluster waits for it.
lacking_cluster=
prepare_cluster() {
    { test/tools/build.sh cluster >"$TMPDIR/cluster" && test/tools/csi.sh >"$TMPDIR/csi"; } </dev/null 8>&- &
    building=$!
}

await_cluster() {
    if ! wait "$building"; then
        lacking_cluster="the servers of a cluster, or the sidecars of CSI drivers, could not be built"
    else
        NUMALET_CLUSTER=$(<"$TMPDIR/cluster") NUMALET_CSI=$(<"$TMPDIR/csi")
        export NUMALET_CLUSTER NUMALET_CSI
    fi
}

trap interrupted INT TERM HUP
scratch_enter
echo "== go downloads and compiles what has changed: the first time some minutes on two cores" >&2
go build -o "$TMPDIR/progress" ./test/progress || exit 1
case " $* " in *" unit "* | *" containerd "* | *" walks "* | *" cluster "*) prepare ;; esac
case " $* " in *" numa "* | *" guests "*) prepare_numa ;; esac
case " $* " in *" cluster "*) prepare_cluster ;; esac

case " $* " in *" sim "* | *" containerd "* | *" cluster "*)
    if [ ${#race[@]} = 0 ]; then # the programs that tests run, once for all of them
        go build -o "$TMPDIR/" ./cmd/numalet ./cmd/numalet-gpu &&
            export NUMALET_BINARY=$TMPDIR/numalet NUMALET_GPU_BINARY=$TMPDIR/numalet-gpu
    fi
    ;;
esac

if [ ${#race[@]} = 0 ]; then # sim mostly waits, so it goes on beside unit, which computes
    case " $* " in *" unit "*" sim "*) begin sim ;; esac
fi

for name in "$@"; do
    case $name in
    unit | walks) tier "$name" ;;
    sim)
        [ -n "${group[sim]:-}" ] || begin sim
        end_tier sim
        ;;
    containerd)
        if [ -n "$lacking" ]; then
            leave_out containerd "$lacking"
        else
            tier containerd
        fi
        ;;
    numa | guests)
        if [ -n "$lacking_numa" ]; then
            leave_out "$name" "$lacking_numa"
        else
            tier "$name"
        fi
        ;;
    cluster)
        await_cluster
        if [ -n "$lacking_cluster" ]; then
            leave_out cluster "$lacking_cluster"
        else
            tier cluster
        fi
        ;;
    esac
done

scratch_leave $failed
echo "== summary"
printf '   %s\n' "${summary[@]}"
exit $failed
