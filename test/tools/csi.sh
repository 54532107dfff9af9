#!/usr/bin/env bash
# Builds Kubernetes' sidecars of CSI drivers (external-attacher, external-resizer) and csi-sanity, which
# checks drivers, pinned by the go.mod in csi/, and prints the folder they are in. Once built they are
# used again: the folder's name is the hash of everything that decides its content.
set -euo pipefail
cd "$(dirname "$0")/csi"
key=$(cat go.mod go.sum ../csi.sh | sha256sum | cut -c1-16)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/numalet/csi
bin=$cache/$key

mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9 # another build may be under way, and then nothing is left to do
if [ ! -e "$bin/csi-sanity" ]; then
    new=$(mktemp -d "$cache/new.XXXXXX")
    trap 'rm -rf "$new"' EXIT
    trap 'exit 130' INT TERM HUP
    echo "csi: downloaded and built, once: a minute where the servers are built, four minutes else" >&2
    org=github.com/kubernetes-csi
    CGO_ENABLED=0 GOFLAGS='' nice go build -trimpath -buildvcs=false -ldflags '-s -w' -o "$new/" \
        $org/csi-test/v5/cmd/csi-sanity $org/external-attacher/v4/cmd/csi-attacher \
        $org/external-resizer/v2/cmd/csi-resizer >&2
    chmod 755 "$new"
    mv "$new" "$bin"
    trap - EXIT
fi
echo "$bin"
