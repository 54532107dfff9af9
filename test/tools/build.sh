#!/usr/bin/env bash
# Builds the real servers the tests run against, pinned by the go.mod beside their list of commands,
# and prints the folder they are in. A folder once built is used again: its name is the hash of
# everything that decides its content.
#
#   bin=$(test/tools/build.sh)            containerd, its shim and ctr
#   bin=$(test/tools/build.sh cluster)    etcd, what Kubernetes' control plane is made of, kubectl,
#                                         metrics-server, the kubelet, a device plugin and a
#                                         driver for resource claims
#   bin=$(test/tools/build.sh schedulers) the scheduler of sigs.k8s.io/scheduler-plugins
set -euo pipefail
cd "$(dirname "$0")"
script=$PWD/build.sh
what=${1:-containerd}
case $what in
containerd)
    kind=tools
    minutes=2
    ;;
cluster)
    kind=cluster
    minutes=12
    cd kubernetes
    ;;
schedulers)
    kind=schedulers
    minutes=5
    cd schedulers
    ;;
*)
    echo "tools: there is no $what to build: it is containerd (the default), cluster or schedulers" >&2
    exit 2
    ;;
esac
key=$(cat go.mod go.sum "$script" | sha256sum | cut -c1-16)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/numalet/$kind
bin=$cache/$key/bin
export CGO_ENABLED=0 GOFLAGS=''

say() { echo "tools: $*" >&2; }

# progress shows what go says, but for the names of packages that it has compiled: of these it
# counts so many.
progress() { # HOW MANY
    local line done=0 step=$((($1 + 19) / 20))
    while read -r line; do
        if [[ $line == \#* || $line == *" "* || $line == *$'\t'* ]]; then
            say "$line"
        elif [ $((++done % step)) = 0 ] && [ $done -lt "$1" ]; then
            say "$done of $1 packages are compiled, $((SECONDS / 60)) min"
        fi
    done
}

# compile builds commands, which share what they are made of, into the folder.
compile() { # LDFLAGS TAGS PACKAGE...
    local flags=(-trimpath -buildvcs=false -tags "$2") ldflags=$1 stale
    shift 2
    stale=$(go list -deps "${flags[@]}" -f '{{if .Stale}}x{{end}}' "$@" | grep -c x || true)
    say "$stale packages are to be compiled"
    nice go build -v "${flags[@]}" -ldflags "-s -w $ldflags" -o "$new/bin/" "$@" 2>&1 |
        progress "$stale"
}

version() { go list -m -f '{{.Version}}' "$1"; } # MODULE

build_containerd() {
    local module=github.com/containerd/containerd/v2
    compile "-X $module/version.Version=$(version $module)" no_btrfs,no_zfs,no_devmapper \
        $module/cmd/{containerd,containerd-shim-runc-v2,ctr}
}

build_cluster() {
    local module=k8s.io/kubernetes etcd=go.etcd.io/etcd/server/v3 v package ldflags=
    v=$(version $module) # v1.37.2
    for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
        ldflags+=" -X $package.gitVersion=$v -X $package.gitMajor=$(cut -d. -f1 <<<"${v#v}")"
        ldflags+=" -X $package.gitMinor=$(cut -d. -f2 <<<"$v")"
    done
    compile "$ldflags" '' $etcd sigs.k8s.io/metrics-server/cmd/metrics-server \
        $module/cmd/kube{-apiserver,-controller-manager,-scheduler,ctl,let} \
        $module/test/images/sample-device-plugin $module/test/e2e/dra/test-driver
    mv "$new/bin/server" "$new/bin/etcd" # go calls a command by the end of its path
    mv "$new/bin/test-driver" "$new/bin/dra-test-driver"
}

build_schedulers() {
    compile '' '' sigs.k8s.io/scheduler-plugins/cmd/scheduler
}

mkdir -p "$cache"
exec 9>"$cache/lock"
flock -n 9 || { # another build is under way, and then nothing is left to do
    say "waiting for another build, up to $minutes minutes"
    flock 9
}

if [ ! -d "$bin" ]; then
    new=$(mktemp -d "$cache/new.XXXXXX")
    trap 'rm -rf "$new"' EXIT
    trap 'exit 130' INT TERM HUP
    chmod 755 "$new"
    say "$what is downloaded and built, once: about $minutes minutes on two cores"
    "build_$what"
    mv "$new" "$cache/$key"
    trap - EXIT
    say "built into $bin in $SECONDS s"
fi
echo "$bin"
