#!/usr/bin/env bash
# Runs tiers of tests: unit, sim, containerd. Installs what a tier needs. A tier that cannot run
# here is left out with one line that says why; in CI (CI=true) that is a failure.
set -uo pipefail
cd "$(dirname "$0")/.."
export CGO_ENABLED=0

failed=0

leave_out() { # TIER WHY
    echo "LEFT OUT: tier $1: $2"
    if [ "${CI:-}" = true ]; then
        failed=1
    fi
}

tier() { # NAME COMMAND...
    local name=$1
    shift
    echo "== tier $name"
    if ! "$@"; then
        echo "== tier $name FAILED"
        failed=1
    fi
}

run_unit() {
    # shellcheck disable=SC2046 # package paths have no spaces
    go test -timeout 20m $(go list ./... | grep -v '^github.com/numalet/numalet/test')
}

run_sim() {
    go test -timeout 20m ./test/ ./test/harness/...
}

run_containerd() {
    go test -timeout 20m ./test/containerd/...
}

for name in "$@"; do
    case $name in
    unit) tier unit run_unit ;;
    sim) tier sim run_sim ;;
    containerd)
        if [ "$(id -u)" != 0 ]; then
            leave_out containerd "needs root (containers, cgroups, mounts)"
        elif ! why=$(test/tools/install.sh 2>&1 | tee /dev/stderr | tail -n 1 && exit "${PIPESTATUS[0]}"); then
            leave_out containerd "$why"
        elif ! test/tools/build.sh; then
            leave_out containerd "containerd could not be built"
        else
            tier containerd run_containerd
        fi
        ;;
    *)
        echo "unknown tier $name; there are unit, sim, containerd" >&2
        exit 2
        ;;
    esac
done

exit $failed
