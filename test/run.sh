#!/usr/bin/env bash
# Runs tiers of tests: unit, sim, containerd, numa, guests, cluster. Installs what a tier needs. A tier that
# cannot run here is left out with one line that says why; in CI (CI=true) that is a failure.
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

vet=()
if [ "${CI:-}" = true ]; then
    vet=(-vet=off) # the linters have said all of it, about everything
fi

failed=0
summary=()
job= # the process group of the tier that runs

interrupted() { # what was started ends as after Ctrl-C, which reaches only this script
    trap '' INT TERM HUP
    echo "== interrupted: ending what runs and cleaning up" >&2
    if [ -n "$job" ]; then
        kill -INT -- "-$job" 2>/dev/null
    fi
    scratch_leave
    exit 130
}

# together runs a command in a process group of its own.
together() {
    set -m
    "$@" </dev/null 8>&- &
    set +m
    job=$!
    wait "$job"
    local result=$?
    job=
    return $result
}

leave_out() { # TIER WHY
    echo "LEFT OUT: tier $1: $2"
    summary+=("$1: LEFT OUT, $2")
    if [ "${CI:-}" = true ]; then
        failed=1
    fi
}

tier() { # NAME COMMAND...
    local name=$1 began=$SECONDS result=ok
    shift
    echo "== tier $name"
    if ! together "$@"; then
        result=FAILED
        failed=1
    fi
    summary+=("$name: $result, $((SECONDS - began)) s")
    echo "== tier $name $result"
}

run_unit() { # random walks are short here, and longer in CI
    local short=(-short)
    if [ "${CI:-}" = true ]; then
        short=()
    fi
    # shellcheck disable=SC2046 # package paths have no spaces
    go test "${race[@]}" "${vet[@]}" "${short[@]}" -timeout $limit $(go list ./... | grep -v '^github.com/numalet/numalet/test') &&
        run_cgo
}

# run_cgo tests what speaks to NVIDIA's libraries, where they can be compiled; with these tags nothing
# else is compiled anew for it. What is compared with NVIDIA's choices is pure, and a module of its own.
run_cgo() {
    if ! command -v "${CC:-gcc}" >/dev/null; then
        echo "LEFT OUT: deviceplugin/gpu/nvml: there is no C compiler"
        return 0
    fi
    CGO_ENABLED=1 CGO_CFLAGS="-O2 -Wno-deprecated-declarations" \
        go test "${race[@]}" "${vet[@]}" -tags netgo,osusergo -timeout $limit ./deviceplugin/gpu/nvml &&
        CGO_ENABLED=1 CGO_CFLAGS="-O2 -Wno-deprecated-declarations" \
            go -C test/gpuallocator test "${vet[@]}" -tags netgo,osusergo -timeout $limit .
}

run_sim() { # these tests mostly wait
    go test "${race[@]}" "${vet[@]}" -count=1 -timeout $limit -parallel $parallel ./test/ ./test/harness/...
}

run_containerd() {
    go test "${race[@]}" "${vet[@]}" -count=1 -timeout $limit ./test/containerd/...
}

# more_guests are tests that boot machines of their own, for some minutes each: the tier guests.
more_guests='^Test(Functions|Swap|Shortage|Shutdown|Quota|Disks)$'

run_numa() { # in its folder, so that its table is shown when it passes too
    (cd test/numa && go test "${vet[@]}" -count=1 -timeout 45m -skip "$more_guests")
}

run_guests() {
    (cd test/numa && go test "${vet[@]}" -count=1 -timeout 45m -run "$more_guests")
}

run_cluster() {
    go test "${vet[@]}" -count=1 -timeout $limit ./test/cluster/...
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
case " $* " in *" unit "* | *" containerd "* | *" cluster "*) prepare ;; esac
case " $* " in *" numa "* | *" guests "*) prepare_numa ;; esac
case " $* " in *" cluster "*) prepare_cluster ;; esac

case " $* " in *" sim "* | *" containerd "* | *" cluster "*)
    if [ ${#race[@]} = 0 ]; then # the agent that tests run, once for all of them
        go build -o "$TMPDIR/numalet" ./cmd/numalet && export NUMALET_BINARY=$TMPDIR/numalet
    fi
    ;;
esac

for name in "$@"; do
    case $name in
    unit) tier unit run_unit ;;
    sim) tier sim run_sim ;;
    containerd)
        if [ -n "$lacking" ]; then
            leave_out containerd "$lacking"
        else
            tier containerd run_containerd
        fi
        ;;
    numa | guests)
        if [ -n "$lacking_numa" ]; then
            leave_out "$name" "$lacking_numa"
        else
            tier "$name" "run_$name"
        fi
        ;;
    cluster)
        await_cluster
        if [ -n "$lacking_cluster" ]; then
            leave_out cluster "$lacking_cluster"
        else
            tier cluster run_cluster
        fi
        ;;
    *)
        scratch_leave
        echo "unknown tier $name; there are unit, sim, containerd, numa, guests, cluster" >&2
        exit 2
        ;;
    esac
done

scratch_leave $failed
echo "== summary"
printf '   %s\n' "${summary[@]}"
exit $failed
